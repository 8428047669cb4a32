internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import ViewFormats

extension ViewExporter {
    /// How many bytes of the places that are compared.
    private static let sampleSize = 4096

    /// Exports one file, unless it is there.
    /// - Parameter path: relative to the source.
    func exportFile(
        _ name: [UInt8], of directory: Descriptor, as target: [UInt8], into destination: ExportDirectory, path: [UInt8]
    ) throws(EntryFailure) {
        let file = try readingView { () throws(StoreError) in
            try Descriptor(object: name, in: directory).openedRegularFile()
        }
        let status = try readingView { () throws(StoreError) in try file.status() }
        let stamp = ExportStamp(status)
        let present = try writingEntry(path) { () throws(StoreError) in try destination.status(of: target) }
        // Before anybody asks for a key.
        if let present, present.st_mode & S_IFMT != S_IFREG || !stamp.isAbout(present.st_mtim) { throw .occupied }
        let content = try content(of: SourceFile(file, size: UInt64(max(0, status.st_size))), status, path)
        if let present {
            guard UInt64(max(0, present.st_size)) == content.length,
                try isSame(target, in: destination, as: content, path)
            else { throw .occupied }
            totals.present += 1
            totals.bytesBefore += content.length
            return
        }
        let partialName = try partialName(target, content, stamp)
        let partial = try writingEntry(path) { () throws(StoreError) in
            try destination.partial(partialName, interval: interval)
        }
        try fill(partial, with: content, path)
        guard let after = try? file.status(), ExportStamp(after) == stamp else {
            partial.remove()
            throw .entry("it was changed while it was read")
        }
        try writingEntry(path) { () throws(StoreError) in
            try partial.finish(as: target, mode: status.st_mode & 0o700 & ~mask, modified: status.st_mtim)
        }
        totals.files += 1
    }

    private func partialName(
        _ target: [UInt8], _ content: OpenContent, _ stamp: ExportStamp
    ) throws(EntryFailure) -> PartialName {
        do throws(CryptoError) {
            return try PartialName(file: target, content: stamp.description + "\n" + content.description)
        } catch {
            throw EntryFailure(StoreError(error))
        }
    }

    /// The plaintext, its keys fetched.
    private func content(
        of file: SourceFile, _ status: stat, _ path: [UInt8]
    ) throws(EntryFailure) -> OpenContent {
        do throws(ViewError) {
            let plan = try source.plan(for: path, file, status)
            var keys: [KeyMaterial] = []
            for name in plan.keyNames { keys.append(try source.keys.fetch(name)) }
            lastToken += 1
            return try plan.open(file, keys: keys, token: lastToken, cache: cache, counters: counters)
        } catch {
            throw EntryFailure(error)
        }
    }

    /// Writes what is not there yet.
    private func fill(
        _ partial: PartialFile, with content: OpenContent, _ path: [UInt8]
    ) throws(EntryFailure) {
        var position = try start(partial, content, path)
        totals.bytesBefore += position
        while position < content.length {
            let count: Int
            do throws(ViewError) {
                // Batches begin at multiples of their size.
                count = try content.read(at: position, into: workspace.reply, workspace: workspace)
            } catch {
                // Of a source that is not what it was nothing is worth keeping.
                if case .malformed = error { partial.remove() }
                throw EntryFailure(error)
            }
            try writingEntry(path) { () throws(StoreError) in
                try partial.write(UnsafeRawBufferPointer(rebasing: workspace.reply[..<count]), at: position)
            }
            position += UInt64(count)
            totals.bytes += UInt64(count)
            guard observer.goesOn(totals) else { throw .whole(.stopped) }
        }
    }

    /// Where to go on: what is there is compared in places, for its name says nothing of the keys.
    private func start(
        _ partial: PartialFile, _ content: OpenContent, _ path: [UInt8]
    ) throws(EntryFailure) -> UInt64 {
        let durable = partial.durableSize
        if durable > 0, durable < content.length, try isSame(partial.descriptor, as: content, upTo: durable, path) {
            return durable
        }
        try writingEntry(path) { () throws(StoreError) in try partial.empty() }
        return 0
    }

    private func isSame(
        _ name: [UInt8], in destination: ExportDirectory, as content: OpenContent, _ path: [UInt8]
    ) throws(EntryFailure) -> Bool {
        let file = try writingEntry(path) { () throws(StoreError) in
            try Descriptor(object: name, in: destination.descriptor).openedRegularFile()
        }
        return try isSame(file, as: content, upTo: content.length, path)
    }

    /// Whether the first bytes, the last before `end`, and those where a second chain begins are the same: another key,
    /// vector or chunk size shows there.
    private func isSame(
        _ file: Descriptor, as content: OpenContent, upTo end: UInt64, _ path: [UInt8]
    ) throws(EntryFailure) -> Bool {
        let size = UInt64(Self.sampleSize)
        for offset in [0, content.secondStart, end - min(end, size)] where offset < end {
            let count = Int(min(size, end - offset))
            let wanted = UnsafeMutableRawBufferPointer(rebasing: workspace.reply[..<count])
            let found = UnsafeMutableRawBufferPointer(rebasing: workspace.reply[count..<(2 * count)])
            do throws(ViewError) { _ = try content.read(at: offset, into: wanted, workspace: workspace) } catch {
                throw EntryFailure(error)
            }
            let had = try writingEntry(path) { () throws(StoreError) in try file.read(at: offset, into: found) }
            guard had == count, wanted.elementsEqual(found) else { return false }
        }
        return true
    }
}
