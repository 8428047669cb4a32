internal import FileSystem
internal import Glibc
internal import LinuxSystem

extension TransferWorker {
    /// Compares an object at the destination with its source, with all of its content.
    func compare(_ object: Object) throws(TransferFailure) {
        guard let existing = try existing(object) else { throw .missing }
        let status = try writing(try destination.status(of: existing))
        guard options.isSame(status, object.status) else {
            throw .entry("its type, size or time is not that of the source")
        }
        switch object.kind {
        case S_IFREG:
            if let reason = try difference(existing, object) {
                count { $0.different += 1 }
                let advice =
                    removeWrongCopy(existing, of: object) ? ": the copy was removed, run the same command again" : ""
                return transfer.failed(object.path, reason + advice)
            }
        case S_IFLNK:
            let target = try reading(try source.linkTarget(of: object.item))
            guard try writing(try destination.linkTarget(of: existing)) == target else {
                throw .entry("its target is not that of the source")
            }
        default: break
        }
        count { $0.files += 1 }
    }

    /// Removes a file that this transfer has copied and that differs from its source. Returns true if that worked. The
    /// difference is reported in any case.
    private func removeWrongCopy(_ existing: Destination.Item, of object: Object) -> Bool {
        guard let since = options.copiedSince, let changed = try? destination.status(of: existing).st_ctim,
            (changed.tv_sec, changed.tv_nsec) >= (since.tv_sec, since.tv_nsec)
        else { return false }
        return (try? destination.remove(object.name, in: object.directory.destination)) != nil
    }

    /// Returns how the contents differ, or nil if they do not.
    func difference(_ existing: Destination.Item, _ object: Object) throws(TransferFailure) -> String? {
        let content = try reading(try source.open(object.item, workspace))
        let copy: Destination.Content
        do throws(StoreError) { copy = try destination.open(existing, workspace) } catch {
            return "what was written cannot be read: \(error.reason)"
        }
        destination.forgetCached(copy)
        let difference = try compare(copy, content).difference
        try expectUnchanged(object)
        return difference
    }

    /// Compares contents from the start up to `end`, or up to the end of the longer.
    /// - Returns: the offset up to which they are the same for sure, and how they differ there, or nil if they do not.
    func compare(
        _ copy: Destination.Content, _ content: Source.Content, upTo end: UInt64 = .max
    ) throws(TransferFailure) -> (sameLength: UInt64, difference: String?) {
        let half = workspace.reply.count / 2
        var offset: UInt64 = 0
        while offset < end {
            guard !transfer.isStopped() else { throw .stopped }
            let size = Int(min(UInt64(half), end - offset))
            let (wanted, found) = (workspace.reply.slice(..<size), workspace.reply.slice(half..<(half + size)))
            let count = try reading(try source.read(content, at: offset, into: wanted, workspace))
            let had: Int
            do throws(StoreError) { had = try destination.read(copy, at: offset, into: found, workspace) } catch {
                return (offset, "what was written cannot be read: \(error.reason)")
            }
            guard had == count, Self.isSame(wanted, found, count) else {
                return (offset, "its content is not that of the source, after byte \(offset)")
            }
            if count == 0 { break }
            if options.isComparing { self.count { $0.bytes += UInt64(count) } }
            offset += UInt64(count)
            // Skip a hole that both have, except its last byte: the ends must be compared.
            let data = try reading(try source.data(in: content, from: offset))
            let other = try? destination.data(in: copy, from: offset)
            let next = min(data?.lowerBound ?? .max, other?.lowerBound ?? .max)
            if next > offset {
                let length = try reading(try source.length(of: content))
                offset = max(offset, min(next, end, length - min(length, 1)))
            }
        }
        return (offset, nil)
    }

    /// Compares 4 KiB at the start, before `end`, and where the source shows another decryption. A different key, initial
    /// vector or chunk size changes one of them.
    func hasSameSamples(
        _ copy: Destination.Content, _ content: Source.Content, upTo end: UInt64
    ) throws(TransferFailure) -> Bool {
        let size: UInt64 = 4096
        for offset in [0, source.decryption(of: content).sample, end - min(end, size)] where offset < end {
            let count = Int(min(size, end - offset))
            let (wanted, found) = (workspace.reply.slice(..<count), workspace.reply.slice(count..<(2 * count)))
            let expected = try reading(try source.read(content, at: offset, into: wanted, workspace))
            let had = try writing(try destination.read(copy, at: offset, into: found, workspace))
            guard expected == count, had == count, Self.isSame(wanted, found, count) else { return false }
        }
        return true
    }

    /// - Throws: `changed` if the source was written to since its status was taken.
    func expectUnchanged(_ object: Object) throws(TransferFailure) {
        let status = try reading(try source.status(of: object.item))
        guard FileStamp(status) == FileStamp(object.status) else { throw .changed }
    }

    private static func isSame(
        _ one: UnsafeMutableRawBufferPointer, _ other: UnsafeMutableRawBufferPointer, _ count: Int
    ) -> Bool {
        guard count > 0, let first = one.baseAddress, let second = other.baseAddress else { return true }
        return memcmp(first, second, count) == 0
    }
}
