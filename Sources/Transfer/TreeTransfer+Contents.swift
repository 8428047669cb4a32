internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

extension TreeTransfer {
    /// Writes all of a file: data where there is data, and nothing where there are holes.
    func fill(
        _ file: Destination.Content, from content: Source.Content, of object: SourceObject<Source.Item>,
        _ workspace: Workspace
    ) throws(TransferFailure) {
        var damage = DamagedRanges()
        try readAll(content, &damage, workspace) { (bytes, offset) throws(TransferFailure) in
            try writing(object.path) { () throws(StoreError) in
                try destination.write(bytes, to: file, at: offset, workspace)
            }
            count { $0.bytes += UInt64(bytes.count) }
        }
        let length = try reading { () throws(StoreError) in try source.length(of: content) }
        try writing(object.path) { () throws(StoreError) in
            try destination.setLength(length, of: file, workspace)
        }
        report(damage, of: object)
    }

    /// Tells what does not verify of a file that is there already.
    func surveyDamage(_ object: SourceObject<Source.Item>, _ workspace: Workspace) throws(TransferFailure) {
        guard object.kind == S_IFREG else { return }
        let content = try reading { () throws(StoreError) in try source.open(object.item, workspace) }
        var damage = DamagedRanges()
        try readAll(content, &damage, workspace) { _, _ in }
        report(damage, of: object)
    }

    private func report(_ damage: DamagedRanges, of object: SourceObject<Source.Item>) {
        guard let reason = damage.reason else { return }
        count { $0.damaged += 1 }
        observer.damaged(object.path, damage.ranges, reason)
    }

    /// Hands all data to `take`, in order.
    private func readAll(
        _ content: Source.Content, _ damage: inout DamagedRanges, _ workspace: Workspace,
        _ take: (UnsafeRawBufferPointer, UInt64) throws(TransferFailure) -> Void
    ) throws(TransferFailure) {
        var offset: UInt64 = 0
        // Report the tail as one range. Someone who can write the vault's directory can make it as long as a file can
        // be.
        let end = options.savesDamaged ? source.authenticLength(of: content) : .max
        while let run = try reading({ () throws(StoreError) in try source.data(in: content, from: offset) }) {
            offset = run.lowerBound
            guard offset < end else {
                return damage.add(offset..<run.upperBound, "sealed at \(end) bytes, \(run.upperBound) are there")
            }
            while offset < min(run.upperBound, end) {
                guard !observer.isStopped() else { throw .whole(.stopped) }
                let wanted = Int(min(UInt64(workspace.reply.count), min(run.upperBound, end) - offset))
                let buffer = UnsafeMutableRawBufferPointer(rebasing: workspace.reply[..<wanted])
                let count = try read(content, at: offset, into: buffer, &damage, workspace, take)
                // It ends earlier than it did, which its times tell.
                if count == 0 { return }
                offset += UInt64(count)
            }
        }
    }

    /// Returns how far it has come; 0 at the end.
    private func read(
        _ content: Source.Content, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer,
        _ damage: inout DamagedRanges, _ workspace: Workspace,
        _ take: (UnsafeRawBufferPointer, UInt64) throws(TransferFailure) -> Void
    ) throws(TransferFailure) -> Int {
        let count: Int
        do throws(StoreError) {
            count = try source.read(content, at: offset, into: buffer, workspace)
        } catch {
            guard options.savesDamaged, case .damaged(let reason) = error else {
                throw TransferFailure(reading: error)
            }
            let unit = source.damageUnit - Int(offset % UInt64(source.damageUnit))
            guard buffer.count > unit else {
                damage.add(offset..<(offset + UInt64(buffer.count)), reason)
                return buffer.count
            }
            return try readUnits(content, at: offset, into: buffer, &damage, workspace, take)
        }
        if count > 0 { try take(UnsafeRawBufferPointer(rebasing: buffer[..<count]), offset) }
        return count
    }

    /// The same for a range of which something is damaged, unit by unit.
    private func readUnits(
        _ content: Source.Content, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer,
        _ damage: inout DamagedRanges, _ workspace: Workspace,
        _ take: (UnsafeRawBufferPointer, UInt64) throws(TransferFailure) -> Void
    ) throws(TransferFailure) -> Int {
        var done = 0
        while done < buffer.count {
            let position = offset + UInt64(done)
            let unit = source.damageUnit - Int(position % UInt64(source.damageUnit))
            let piece = UnsafeMutableRawBufferPointer(rebasing: buffer[..<min(unit, buffer.count - done)])
            let count = try read(content, at: position, into: piece, &damage, workspace, take)
            if count == 0 { break }
            done += count
        }
        return done
    }
}

/// What of a file does not verify.
struct DamagedRanges {
    /// A file may have any number; those beyond are one.
    private static let limit = 1000

    private(set) var ranges: [Range<UInt64>] = []
    /// Of the first.
    private(set) var reason: String?

    /// Ranges come in order.
    mutating func add(_ range: Range<UInt64>, _ text: String) {
        if reason == nil { reason = text }
        if let last = ranges.last, last.upperBound == range.lowerBound || ranges.count == Self.limit {
            ranges[ranges.count - 1] = last.lowerBound..<range.upperBound
        } else {
            ranges.append(range)
        }
    }
}
