/// The possible contents of one file. A test notes the programs' changes here, and asks what a read may return:
///
/// - while the store works: the latest version,
/// - after a kill: chunk by chunk, versions from the last acknowledged one on,
/// - after a power cut: chunk by chunk, versions from the last synced one on,
/// - after a tampering without authentic data: an error, chunks of the latest version, or zeros for a hole.
package final class FileModel {
    /// A program's operation: the number of recorded calls at its beginning, and at its return, which acknowledges it.
    package struct Span: Sendable {
        package let begun, returned: Int

        package init(begun: Int = 0, returned: Int = 0) { (self.begun, self.returned) = (begun, returned) }
    }

    /// The content of a file between two changes.
    package struct Version {
        package fileprivate(set) var length = 0
        /// The chunks, all whole except for the last.
        fileprivate var chunks: [[UInt8]] = []
        /// True if the file then had holes.
        package fileprivate(set) var hasHoles = false
        fileprivate var span = Span()

        /// Returns true if the chunk consists of zeros, or does not exist.
        fileprivate func isZero(_ chunk: Int) -> Bool {
            chunk >= chunks.count || chunks[chunk].allSatisfy { $0 == 0 }
        }

        /// Returns true if this version has this chunk of `bytes`. The last chunk of `bytes` may be only the beginning
        /// of the version's, because a growing write may have left its bytes inside the old length without the new
        /// length.
        fileprivate func has(_ chunk: Int, _ bytes: [UInt8], _ range: Range<Int>) -> Bool {
            guard chunk < chunks.count else { return false }
            let size = chunks[chunk].count
            guard size == range.count || (size > range.count && range.upperBound == bytes.count) else { return false }
            return same(chunks[chunk][..<range.count], bytes[range])
        }
    }

    /// The size of the pieces of zeros that extend a file one by one. From `leastHole` on zeros are a hole.
    private static let piece = 128 << 10
    private static let leastHole = 1 << 20

    package let chunkSize: Int
    package private(set) var versions: [Version]
    /// The synced versions, each with the number of recorded calls at the sync's return.
    private var syncs: [(version: Int, at: Int)] = []

    package init(_ bytes: [UInt8] = [], chunkSize: Int, _ span: Span = Span()) {
        self.chunkSize = chunkSize
        versions = [Version(span: span)]
        if !bytes.isEmpty { settle(bytes) }
    }

    /// Returns the model after a clean end of the mount.
    package func settled() -> FileModel {
        let copy = FileModel(chunkSize: chunkSize)
        copy.versions = [latest]
        copy.versions[0].span = Span()
        copy.syncs = [(0, 0)]
        return copy
    }

    package var latest: Version { versions[versions.count - 1] }
    package var length: Int { latest.length }
    package var bytes: [UInt8] { latest.chunks.reduce(into: []) { $0 += $1 } }

    // MARK: Changes

    package func write(_ bytes: [UInt8], at offset: Int, _ span: Span = Span()) {
        if offset > length { grow(to: offset, span) }
        var version = latest
        resize(&version, to: max(length, offset + bytes.count))
        put(bytes[...], at: offset, &version)
        add(version, span)
    }

    package func setLength(_ length: Int, _ span: Span = Span()) {
        if length > self.length { return grow(to: length, span) }
        var version = latest
        resize(&version, to: length)
        add(version, span)
    }

    /// Zeroes the part of a range inside the file, like fallocate(2). Whole chunks become holes.
    package func clear(_ range: Range<Int>, _ span: Span = Span()) {
        let inside = range.clamped(to: 0..<length)
        guard !inside.isEmpty else { return }
        let start = (inside.lowerBound + chunkSize - 1) / chunkSize * chunkSize
        let end = inside.upperBound / chunkSize * chunkSize
        var version = latest
        if start < end { version.hasHoles = true }
        // Parts of chunks are written as zeros, in pieces.
        for edge in start < end ? [inside.lowerBound..<start, end..<inside.upperBound] : [inside] {
            for first in stride(from: edge.lowerBound, to: edge.upperBound, by: Self.piece) {
                put(zeros(min(Self.piece, edge.upperBound - first)), at: first, &version)
                add(version, span)
            }
        }
        put(zeros(inside.count), at: inside.lowerBound, &version)
        add(version, span)
    }

    /// Adds versions with zeros at the end.
    private func grow(to length: Int, _ span: Span) {
        var version = latest
        let first = (version.length + chunkSize - 1) / chunkSize * chunkSize
        let last = length / chunkSize * chunkSize
        let isHole = length - version.length >= Self.leastHole && last > first
        // After a hole, the last chunk is written as zeros again.
        let (end, holeEnd) = isHole ? (first, last) : (length, length)
        let pieces = Array(stride(from: version.length + Self.piece, to: end, by: Self.piece)) + [end, holeEnd]
        for next in pieces + stride(from: holeEnd + Self.piece, to: length, by: Self.piece) + [length] {
            if isHole { version.hasHoles = true }
            resize(&version, to: next)
            add(version, span)
        }
    }

    /// Forgets former versions.
    package func forget() { (versions, syncs) = ([latest], []) }

    /// Notes the content found in the file.
    package func settle(_ bytes: [UInt8]) {
        setLength(min(length, bytes.count))
        write(bytes, at: 0)
        forget()
    }

    package func noteSync(at count: Int) { syncs.append((versions.count - 1, count)) }

    private func add(_ version: Version, _ span: Span) {
        var version = version
        version.span = span
        versions.append(version)
    }

    private func zeros(_ count: Int) -> ArraySlice<UInt8> { [UInt8](repeating: 0, count: count)[...] }

    private func resize(_ version: inout Version, to length: Int) {
        let count = (length + chunkSize - 1) / chunkSize
        version.chunks.removeLast(max(0, version.chunks.count - count))
        // All chunks but the last are whole, and share their zeros.
        let whole = Array(zeros(chunkSize))
        if let last = version.chunks.last { version.chunks[version.chunks.count - 1] += whole[last.count...] }
        while version.chunks.count < count { version.chunks.append(whole) }
        if let last = version.chunks.indices.last { version.chunks[last].removeLast(count * chunkSize - length) }
        version.length = length
    }

    private func put(_ bytes: ArraySlice<UInt8>, at offset: Int, _ version: inout Version) {
        var position = offset
        let end = offset + bytes.count
        while position < end {
            let chunk = position / chunkSize
            let next = min(end, (chunk + 1) * chunkSize)
            let start = bytes.startIndex + position - offset
            version.chunks[chunk].withUnsafeMutableBytes { target in
                bytes[start..<(start + next - position)].withUnsafeBytes { source in
                    UnsafeMutableRawBufferPointer(rebasing: target[(position - chunk * chunkSize)...])
                        .copyMemory(from: source)
                }
            }
            position = next
        }
    }

    // MARK: What a read may return

    /// Returns the versions whose parts may be visible after a cut before this call: a power cut, or a kill, which
    /// leaves the effects of the process's calls.
    package func window(before call: Int, isKill: Bool) -> ClosedRange<Int> {
        let upper = versions.lastIndex { $0.span.begun <= call } ?? 0
        let lower =
            isKill
            ? versions.lastIndex { $0.span.returned <= call } ?? 0 : syncs.last { $0.at <= call }?.version ?? 0
        return min(lower, upper)...upper
    }

    /// Returns the differences of a file's content from the versions of `window`, chunk by chunk.
    /// - Parameter lost: the unreadable chunks, if they may be unreadable.
    package func differences(
        of bytes: [UInt8], in window: ClosedRange<Int>, lost: Range<Int> = 0..<0
    ) -> [String] {
        let allowed = versions[window]
        // Inside a lost last chunk the length is unknown (FileFormat: Log-10).
        let lostStart = lost.contains((bytes.count - 1) / chunkSize) ? lost.lowerBound : nil
        let inLost = lostStart.flatMap { start in allowed.lastIndex { $0.length > start * chunkSize } }
        guard let last = lastVersion(of: bytes.count, allowed) ?? inLost else {
            return ["\(bytes.count) bytes, versions \(window) had \(allowed.map(\.length))"]
        }
        let hasHoles = allowed.contains(where: \.hasHoles)
        let count = (bytes.count + chunkSize - 1) / chunkSize
        return (0..<count).compactMap { chunk in
            if lost.contains(chunk) { return nil }
            let range = (chunk * chunkSize)..<min(bytes.count, (chunk + 1) * chunkSize)
            if allowed.reversed().contains(where: { $0.has(chunk, bytes, range) }) { return nil }
            let isZero = bytes[range].allSatisfy { $0 == 0 }
            // With holes, the size may be there without the data, if the chunk was missing or a hole before.
            if isZero && hasHoles && allowed[...last].contains(where: { $0.isZero(chunk) }) { return nil }
            let other = versions[..<window.lowerBound].lastIndex { $0.has(chunk, bytes, range) }
            let what = other.map { "is of version \($0)" } ?? (isZero ? "is zeros" : "is of no version")
            return "chunk \(chunk) of \(count) (\(range.count) bytes) \(what), not of \(window)"
        }
    }

    /// Returns the last version of this length, or growing over this boundary of chunks. Nil if there is none.
    private func lastVersion(of length: Int, _ versions: ArraySlice<Version>) -> Int? {
        versions.indices.last { index in
            if versions[index].length == length { return true }
            guard length % chunkSize == 0, index > versions.startIndex else { return false }
            return versions[index - 1].length < length && length < versions[index].length
        }
    }

    /// Returns true if a read may return this whole content after changes to the backing file without authentic data. A
    /// sealed file has its length. An unsealed one may be cut between two chunks or in a hole, but extended only if it
    /// has holes. With holes, a chunk may be zeroed.
    package func allowsTampered(_ bytes: [UInt8], isSealed: Bool) -> Bool {
        if isSealed && bytes.count != length { return false }
        let isChunkEnd = bytes.count == length || bytes.count % chunkSize == 0
        if !latest.hasHoles && (bytes.count > length || !isChunkEnd) { return false }
        return (0..<((bytes.count + chunkSize - 1) / chunkSize)).allSatisfy { chunk in
            let range = (chunk * chunkSize)..<min((chunk + 1) * chunkSize, bytes.count)
            if range.upperBound <= length && same(latest.chunks[chunk][..<range.count], bytes[range]) { return true }
            return latest.hasHoles && same(bytes[range], zeros(range.count))
        }
    }
}
