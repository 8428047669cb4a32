internal import FileSystem
internal import Glibc
internal import LinuxSystem

extension TransferWorker {
    /// Writes a file's data and leaves its holes.
    /// - Parameter start: where a file that can be resumed goes on; nil for any other file.
    func fill(
        _ file: Destination.Content, from content: Source.Content, of object: Object, resumedAt start: UInt64? = nil
    ) throws(TransferFailure) {
        var damage = DamagedRanges()
        let interval = options.resumeInterval
        var durable = start ?? 0
        try readAll(content, from: durable, &damage) { (bytes, offset) throws(TransferFailure) in
            try writing { () throws(StoreError) in
                // If a file goes beyond a multiple of the interval, all bytes before that are on disk.
                if start != nil && offset / interval > durable / interval {
                    try destination.synchronize(file)
                    durable = offset
                }
                try destination.write(bytes, to: file, at: offset, workspace)
            }
            count { $0.bytes += UInt64(bytes.count) }
        }
        let length = try reading(try source.length(of: content))
        if destination.sealsFiles { try expectEnd(of: content, at: length, object) }
        try writing { () throws(StoreError) in
            if start != nil || options.contentsOnly { try destination.synchronize(file) }
            try destination.setLength(length, of: file, workspace)
        }
        report(damage, of: object)
    }

    /// - Throws: if a real file does not end where its size says: such are in /proc and /sys, and on network storage that
    ///   does not know its files' sizes.
    private func expectEnd(of content: Source.Content, at length: UInt64, _ object: Object) throws(TransferFailure) {
        let start = length - min(length, 1)
        let end = workspace.reply.slice(..<2)
        guard try reading(try source.read(content, at: start, into: end, workspace)) != length - start else { return }
        try expectUnchanged(object)
        throw .entry("its size is not that of its content")
    }

    /// Goes on inside a large file that an interrupted transfer has begun, or begins it.
    func resumeFile(
        _ name: [UInt8], from content: Source.Content, of object: Object
    ) throws(TransferFailure) -> Destination.Item {
        let directory = object.directory.destination
        // Unfinished files of the same name, made from other content or from an older state of the source.
        removeStale(in: directory) { $0 != name && TemporaryName.isSameFile($0, name) }
        let (made, file) = try writing(try destination.resume(name, in: directory, workspace))
        let size = try writing(try destination.length(of: file))
        var start = size == 0 ? 0 : (size - 1) / options.resumeInterval * options.resumeInterval
        let length = try reading(try source.length(of: content))
        if start >= length { start = 0 }
        if destination.sealsFiles {
            // Whoever can write the vault's directory can lengthen an unsealed file with zeros, put another file in its place,
            // or damage it. A seal would make that final, so compare everything.
            start = try compare(file, content, upTo: start).sameLength / options.resumeInterval * options.resumeInterval
        } else if (try? hasSameSamples(file, content, upTo: start)) != true {
            // The name does not depend on the keys. A copy that cannot be read begins anew.
            start = 0
        }
        try writing(try destination.setLength(start, of: file, workspace))
        count { $0.bytesPresent += start }
        try fill(file, from: content, of: object, resumedAt: start)
        return made
    }

    /// Reports the damage of a file whose copy is there already.
    func surveyDamage(_ object: Object) throws(TransferFailure) {
        guard object.kind == S_IFREG else { return }
        let content = try reading(try source.open(object.item, workspace))
        var damage = DamagedRanges()
        try readAll(content, from: 0, &damage) { _, _ in }
        report(damage, of: object)
    }

    private func report(_ damage: DamagedRanges, of object: Object) {
        guard let reason = damage.reason else { return }
        count { $0.damaged += 1 }
        transfer.damaged(object.path, damage.ranges, reason)
    }

    /// Passes all data from an offset on to `deliver`, in order. No batch crosses a multiple of the resume interval.
    private func readAll(
        _ content: Source.Content, from start: UInt64, _ damage: inout DamagedRanges,
        _ deliver: (UnsafeRawBufferPointer, UInt64) throws(TransferFailure) -> Void
    ) throws(TransferFailure) {
        var offset = start
        let interval = options.resumeInterval
        // Report the tail as one range. Someone who can write the vault's directory can make it as long as a file can
        // be.
        let end = options.savesDamaged ? source.authenticLength(of: content) : .max
        while let run = try reading(try source.data(in: content, from: offset)) {
            offset = run.lowerBound
            guard offset < end else {
                let reason = "it should be \(end) bytes long, \(run.upperBound) are there"
                return damage.add(offset..<run.upperBound, reason)
            }
            while offset < min(run.upperBound, end) {
                guard !transfer.isStopped() else { throw .stopped }
                let left = min(min(run.upperBound, end) - offset, interval - offset % interval)
                let buffer = workspace.reply.slice(..<Int(min(UInt64(workspace.reply.count), left)))
                let count = try read(content, at: offset, into: buffer, &damage, deliver)
                // The file was cut meanwhile. Its times show that.
                if count == 0 { return }
                offset += UInt64(count)
            }
        }
    }

    /// Reads a range, unit by unit if it contains damage.
    /// - Returns: the number of bytes read or skipped; 0 at the end.
    private func read(
        _ content: Source.Content, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer,
        _ damage: inout DamagedRanges, _ deliver: (UnsafeRawBufferPointer, UInt64) throws(TransferFailure) -> Void
    ) throws(TransferFailure) -> Int {
        let count: Int
        do throws(StoreError) { count = try source.read(content, at: offset, into: buffer, workspace) } catch {
            guard options.savesDamaged, case .damaged(let reason) = error else { throw TransferFailure(reading: error) }
            func unit(at position: UInt64) -> Int { source.damageUnit - Int(position % UInt64(source.damageUnit)) }
            guard buffer.count > unit(at: offset) else {
                damage.add(offset..<(offset + UInt64(buffer.count)), reason)
                return buffer.count
            }
            var done = 0
            while done < buffer.count {
                let position = offset + UInt64(done)
                let piece = buffer.slice(done..<min(done + unit(at: position), buffer.count))
                let count = try read(content, at: position, into: piece, &damage, deliver)
                if count == 0 { break }
                done += count
            }
            return done
        }
        if count > 0 { try deliver(UnsafeRawBufferPointer(buffer.slice(..<count)), offset) }
        return count
    }
}

/// The ranges of a file that do not verify.
struct DamagedRanges {
    /// A file can have any number of them. The last one covers those beyond the limit.
    private static let limit = 1000

    private(set) var ranges: [Range<UInt64>] = []
    /// The reason of the first range.
    private(set) var reason: String?

    /// - Parameter range: after those added before.
    mutating func add(_ range: Range<UInt64>, _ text: String) {
        if reason == nil { reason = text }
        if let last = ranges.last, last.upperBound == range.lowerBound || ranges.count == Self.limit {
            ranges[ranges.count - 1] = last.lowerBound..<range.upperBound
        } else {
            ranges.append(range)
        }
    }
}
