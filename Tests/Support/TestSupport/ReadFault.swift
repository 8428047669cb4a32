internal import CallWatch
internal import Glibc
internal import Synchronization

/// Failures of read calls, by any thread, as on a disk with a read error.
package enum ReadFault {
    package enum Kind: Sendable {
        /// Some bytes of a file.
        case bytes(count: Int)
        /// The entries of a directory.
        case entries
        /// fstatat(2) of an entry.
        case status
        /// An open of an existing object.
        case open
    }

    private static let asked = Mutex<[String: @Sendable (Kind, String) -> Int32]>([:])

    /// - Parameters:
    ///   - directory: an absolute path without links. Only calls below it are passed to `answer`.
    ///   - answer: gets the object of the read, and its path. Returns 0, the call's errno, or `CallWatcher.inPart`.
    package static func during<Result>(
        in directory: String, _ answer: @escaping @Sendable (Kind, String) -> Int32, _ body: () throws -> Result
    ) rethrows -> Result {
        asked.withLock { $0[directory] = answer }
        read_watch_set { ReadFault.answer($0, $1, $2, $3) }
        defer {
            asked.withLock { asked in
                asked.removeValue(forKey: directory)
                if asked.isEmpty { read_watch_set(nil) }
            }
        }
        return try body()
    }

    private static func answer(_ kind: read_kind, _ fd: Int32, _ name: UnsafePointer<CChar>?, _ count: Int) -> Int32 {
        var target = [CChar](repeating: 0, count: Int(PATH_MAX))
        let size = readlink("/proc/self/fd/\(fd)", &target, target.count)
        guard size > 0 else { return 0 }
        var path = String(decoding: target[..<size].map { UInt8(bitPattern: $0) }, as: UTF8.self)
        if let name { path += "/" + String(cString: name) }
        guard let answer = asked.withLock({ $0.first { path.hasPrefix($0.key + "/") }?.value }) else { return 0 }
        switch kind {
        case READ_BYTES: return answer(.bytes(count: count), path)
        case READ_ENTRIES: return answer(.entries, path)
        case READ_OPEN: return answer(.open, path)
        default: return answer(.status, path)
        }
    }
}
