internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

extension TreeTransfer {
    /// Compares an object at the destination with its source, with all of its content.
    func compare(
        _ object: SourceObject<Source.Item>, in directory: Directory, _ workspace: Workspace
    ) throws(TransferFailure) {
        guard let existing = try existing(object, in: directory) else {
            throw .missing
        }
        let status = try writing(object.path, try destination.status(of: existing))
        guard options.isSame(status, object.status) else {
            throw .entry("its type, size or time is not that of the source")
        }
        switch object.kind {
        case S_IFREG:
            if let reason = try difference(existing, object, workspace) {
                count { $0.different += 1 }
                let isRemoved = removeWrongCopy(existing, of: object, in: directory)
                return observer.failed(
                    object.path, reason + (isRemoved ? ": the copy was removed, run the same command again" : ""))
            }
        case S_IFLNK:
            let target = try reading(try source.linkTarget(of: object.item))
            let found = try writing(object.path, try destination.linkTarget(of: existing))
            guard found == target else { throw .entry("its target is not that of the source") }
        default: break
        }
        count { $0.files += 1 }
    }

    /// Removes a file that this transfer has copied and that differs from its source. Returns true if that worked.
    private func removeWrongCopy(
        _ existing: Destination.Item, of object: SourceObject<Source.Item>, in directory: Directory
    ) -> Bool {
        guard let since = options.copiedSince, let status = try? destination.status(of: existing) else { return false }
        let changed = status.st_ctim
        guard (changed.tv_sec, changed.tv_nsec) >= (since.tv_sec, since.tv_nsec) else { return false }
        do throws(StoreError) {
            try destination.remove(object.name, in: directory.destination)
            return true
        } catch {
            // The difference is reported in any case.
            return false
        }
    }

    /// Returns how the contents differ, or nil if they do not.
    func difference(
        _ existing: Destination.Item, _ object: SourceObject<Source.Item>, _ workspace: Workspace
    ) throws(TransferFailure) -> String? {
        let content = try reading(try source.open(object.item, workspace))
        let half = workspace.reply.count / 2
        let wanted = UnsafeMutableRawBufferPointer(rebasing: workspace.reply[..<half])
        let found = UnsafeMutableRawBufferPointer(rebasing: workspace.reply[half..<(2 * half)])
        let copy: Destination.Content
        do throws(StoreError) { copy = try destination.open(existing, workspace) } catch {
            return Self.unreadable(error)
        }
        destination.forgetCached(copy)
        var offset: UInt64 = 0
        while true {
            guard !observer.isStopped() else { throw .whole(.stopped) }
            let count = try reading(try source.read(content, at: offset, into: wanted, workspace))
            let had: Int
            do throws(StoreError) { had = try destination.read(copy, at: offset, into: found, workspace) } catch {
                return Self.unreadable(error)
            }
            guard had == count, Self.isSame(wanted, found, count) else {
                try expectUnchanged(object)
                return "its content is not that of the source, after byte \(offset)"
            }
            if count == 0 {
                try expectUnchanged(object)
                return nil
            }
            if options.isComparing { self.count { $0.bytes += UInt64(count) } }
            offset += UInt64(count)
            // Skip a hole that both have, except its last byte: the ends must be compared.
            let data = try reading(try source.data(in: content, from: offset))
            let other = try? destination.data(in: copy, from: offset)
            let next = min(data?.lowerBound ?? .max, other?.lowerBound ?? .max)
            if next > offset {
                let length = try reading(try source.length(of: content))
                offset = max(offset, min(next, length - min(length, 1)))
            }
        }
    }

    /// Compares 4 KiB at the start, before `end`, and where the source shows another decryption. A different key, initial
    /// vector or chunk size changes one of them.
    func hasSameSamples(
        _ copy: Destination.Content, _ content: Source.Content, upTo end: UInt64, _ path: [UInt8],
        _ workspace: Workspace
    ) throws(TransferFailure) -> Bool {
        let size: UInt64 = 4096
        for offset in [0, source.decryption(of: content).sample, end - min(end, size)] where offset < end {
            let count = Int(min(size, end - offset))
            let wanted = UnsafeMutableRawBufferPointer(rebasing: workspace.reply[..<count])
            let found = UnsafeMutableRawBufferPointer(rebasing: workspace.reply[count..<(2 * count)])
            let expected = try reading(try source.read(content, at: offset, into: wanted, workspace))
            let had = try writing(path, try destination.read(copy, at: offset, into: found, workspace))
            guard expected == count, had == count, Self.isSame(wanted, found, count) else { return false }
        }
        return true
    }

    /// - Throws: `changed` if the source was written to since its status was taken.
    func expectUnchanged(_ object: SourceObject<Source.Item>) throws(TransferFailure) {
        let status = try reading(try source.status(of: object.item))
        guard FileStamp(status) == FileStamp(object.status) else { throw .changed }
    }

    private static func isSame(
        _ one: UnsafeMutableRawBufferPointer, _ other: UnsafeMutableRawBufferPointer, _ count: Int
    ) -> Bool {
        guard count > 0, let first = one.baseAddress, let second = other.baseAddress else { return true }
        return memcmp(first, second, count) == 0
    }

    private static func unreadable(_ error: StoreError) -> String {
        switch error {
        case .system(let errno): "what was written cannot be read: \(errno)"
        case .damaged(let text), .crypto(let text): "what was written cannot be read: \(text)"
        }
    }
}
