package import TestSupport

/// A disk whose cache a power cut loses, as a journaling file system uses it. It knows nothing of vaults. After a cut:
///
/// - Data written since the last sync is there or not, in pieces of 512 bytes or of a page.
/// - Unsynced changes of a file's size, and holes, are there up to some moment. Data is lost if a later change removed
///   its space, or if its size is lost. A size may be there without its data, as zeros. A page's end zeroed by a
///   truncation may be zero although the file has its old size.
/// - Changes of names are there up to some moment, independently of the files' contents.
package struct SimulatedDisk {
    /// True if zeros may be on disk before the new size or hole: at the end of a truncation's last page, and at the
    /// ends of a hole. ext4 and XFS write them as data of the page cache, and log the rest later.
    private static let zeroesEarly = true

    private typealias Pending = (position: Int, event: DiskEvent)

    private var durable: DiskState
    /// Changes not durable yet: of names, and of each file.
    private var names: [DiskEvent] = []
    private var pending: [Int: [Pending]] = [:]
    /// Number of events so far.
    private var count = 0

    package init(_ initial: DiskState) { durable = initial }

    /// Makes the next recorded change.
    package mutating func apply(_ event: DiskEvent) {
        count += 1
        switch event {
        case .write(let object, _, _), .resize(let object, _), .punch(let object, _):
            pending[object, default: []].append((count, event))
        case .name, .remove, .rename: names.append(event)
        case .synchronize(let object):
            keepContent(of: object)
            if let last = names.lastIndex(where: { $0.isKept(bySynchronizing: object) }) { keepNames(last + 1) }
        case .synchronizeAll:
            for object in pending.keys { keepContent(of: object) }
            keepNames(names.count)
        }
    }

    private mutating func keepContent(of object: Int) {
        guard pending[object] != nil else { return }
        durable.files[object] = content(of: object, .everything)
        pending[object] = nil
    }

    private mutating func keepNames(_ count: Int) {
        for event in names[..<count] { durable.apply(event) }
        names.removeFirst(count)
    }

    /// Returns the state after a kill of the process: every call has its effect, and the beginning of one more write.
    package func killed(during next: DiskEvent?, seed: UInt64) -> DiskState {
        var disk = self
        // A signal stops a write between pages.
        if case .write(let object, let offset, let bytes)? = next {
            let firstEnd = (offset / DiskFile.pageSize + 1) * DiskFile.pageSize
            let ends = stride(from: firstEnd, to: offset + bytes.count, by: DiskFile.pageSize)
            var random = SeededGenerator(seed: seed)
            let end = random.below(2) == 0 ? nil : Array(ends).randomElement(using: &random)
            if let end { disk.apply(.write(object, at: offset, Array(bytes[..<(end - offset)]))) }
        }
        disk.apply(.synchronizeAll)
        return disk.durable
    }

    /// Returns one of the states possible after a power cut now.
    package func cut(seed: UInt64) -> DiskState {
        var random = SeededGenerator(seed: seed)
        var state = durable
        for event in names[..<random.prefix(of: names.count)] { state.apply(event) }
        let pieceSize = random.below(2) == 0 ? 512 : DiskFile.pageSize
        for (object, events) in pending {
            state.files[object] = content(of: object, Loss(seed, object, events.map(\.position), pieceSize))
        }
        return state
    }

    /// Returns a file, as far as it reached the disk.
    private func content(of object: Int, _ loss: Loss) -> DiskFile {
        var file = durable.files[object] ?? DiskFile()
        var loss = loss
        // The size if everything had reached the disk.
        var size = file.size
        // Space freed by a removal that did not reach the disk.
        var removed: [Range<Int>] = []
        for (position, event) in pending[object] ?? [] {
            let isWritten = { (piece: Int) in
                loss.reaches(piece, position) && !removed.contains { $0.contains(piece) }
            }
            switch event {
            case .write(_, let offset, let bytes):
                let end = offset + bytes.count
                if end > size {
                    size = end
                    if loss.keepsChange() {
                        file.resize(to: end)
                    } else if let partial = loss.partialSize(file.size, end) {
                        file.resize(to: partial)
                    }
                }
                file.write(bytes, at: offset, pieceSize: loss.pieceSize, isWritten: isWritten)
            case .resize(_, let newSize):
                guard newSize != size else { continue }
                if loss.keepsChange() {
                    file.resize(to: newSize)
                } else if newSize < size {
                    let pageEnd = (newSize + DiskFile.pageSize - 1) / DiskFile.pageSize * DiskFile.pageSize
                    if Self.zeroesEarly {
                        file.zero(newSize..<pageEnd, pieceSize: loss.pieceSize, isWritten: isWritten)
                    }
                    removed.append(pageEnd..<Int.max)
                }
                size = newSize
            case .punch(_, let range):
                let range = range.clamped(to: 0..<size)
                if loss.keepsChange() {
                    file.punch(range)
                } else {
                    for edge in DiskFile.edges(of: range) where Self.zeroesEarly {
                        file.zero(edge, pieceSize: loss.pieceSize, isWritten: isWritten)
                    }
                    removed.append(DiskFile.wholePages(in: range))
                }
            default: break
            }
        }
        return file
    }
}

/// The part of a file's changes lost by a cut.
private struct Loss {
    static let everything = Loss()

    let pieceSize: Int
    private let seed: UInt64
    /// The positions of the changes among all events.
    private let positions: [Int]
    /// Number of further changes of size, and of holes, to be kept.
    private var changesLeft: Int
    private var lostChanges = 0
    private enum Style { case nothing, everything, pieces }
    private let style: Style

    private init() {
        (pieceSize, seed, positions, changesLeft, style) = (DiskFile.pageSize, 0, [], .max, .everything)
    }

    init(_ seed: UInt64, _ object: Int, _ positions: [Int], _ pieceSize: Int) {
        self.pieceSize = pieceSize
        self.positions = positions
        var random = SeededGenerator(seed: seed ^ UInt64(object + 1) << 32)
        self.seed = random.next()
        style = [.nothing, .everything, .pieces, .pieces][random.below(4)]
        changesLeft = random.prefix(of: positions.count)
    }

    /// Returns true if the next change of size or hole reached the disk.
    mutating func keepsChange() -> Bool {
        if changesLeft == 0 {
            lostChanges += 1
            return false
        }
        changesLeft -= 1
        return true
    }

    /// Returns the size in the middle of a growth, if that is the first lost change. Nil if the growth did not begin.
    func partialSize(_ size: Int, _ end: Int) -> Int? {
        var random = SeededGenerator(seed: seed ^ 1)
        let first = (size / DiskFile.pageSize + 1) * DiskFile.pageSize
        guard lostChanges == 1, first < end, random.below(2) == 0 else { return nil }
        return first + random.below((end - first - 1) / DiskFile.pageSize + 1) * DiskFile.pageSize
    }

    /// Returns true if a piece on disk has the data of the change at this position. Pieces come whole from the page
    /// cache, so with all earlier changes.
    func reaches(_ piece: Int, _ position: Int) -> Bool {
        switch style {
        case .everything: return true
        case .nothing: return false
        case .pieces:
            var random = SeededGenerator(seed: seed ^ UInt64(piece / 512 + 1) << 20)
            let kept = random.prefix(of: positions.count)
            return kept > 0 && position <= positions[kept - 1]
        }
    }
}

extension SeededGenerator {
    package mutating func below(_ limit: Int) -> Int { Int(next() % UInt64(limit)) }

    /// Returns none, all, or a part of `count`, each in a third of the cases.
    mutating func prefix(of count: Int) -> Int {
        switch below(3) {
        case 0: 0
        case 1: count
        default: below(count + 1)
        }
    }
}
