internal import LinuxSystem

/// The names of one node, the latest first. Guarded by the mutex of all nodes, so a call costs the same on average
/// whatever the number of names, unless it returns or removes all: backups by hard links (cp -al) and stores of
/// packages (pnpm) give one file tens of thousands.
///
/// Nearly every node has one name, and there may be a node for each file. So the first name needs neither array nor
/// dictionary.
struct NodeNames {
    private(set) var first: NodeName<TableNode>?
    /// The other names, each with the number of its last `put`.
    private var others: [Key: Int] = [:]
    /// The same, the latest last. Also has names that were removed or put again since, whose number is not in `others`.
    private var order: [(name: NodeName<TableNode>, number: Int)] = []
    private var lastNumber = 0

    private struct Key: Hashable {
        private let parent: ObjectIdentifier
        private let entry: Component

        init(_ parent: TableNode, _ entry: Component) { (self.parent, self.entry) = (ObjectIdentifier(parent), entry) }
    }

    var all: [NodeName<TableNode>] { first.map { [$0] + olderNames } ?? [] }

    private var olderNames: [NodeName<TableNode>] { order.reversed().filter(isCurrent).map(\.name) }

    private func isCurrent(_ placed: (name: NodeName<TableNode>, number: Int)) -> Bool {
        others[Key(placed.name.parent, placed.name.entry)] == placed.number
    }

    /// Makes this name the first. Returns false if it was known already.
    /// - Parameter steps: the number of names that were looked at one by one is added.
    mutating func put(_ parent: TableNode, _ entry: Component, _ steps: inout Int) -> Bool {
        guard let known = first else {
            first = NodeName(parent: parent, entry: entry)
            return true
        }
        if known.isSame(parent, entry) { return false }
        let wasKnown = others.removeValue(forKey: Key(parent, entry)) != nil
        lastNumber += 1
        others[Key(known.parent, known.entry)] = lastNumber
        order.append((known, lastNumber))
        first = NodeName(parent: parent, entry: entry)
        removeOutdated(&steps)
        return !wasKnown
    }

    /// Returns false if it is not one of the names.
    mutating func remove(_ parent: TableNode, _ entry: Component, _ steps: inout Int) -> Bool {
        guard let known = first, known.isSame(parent, entry) else {
            guard others.removeValue(forKey: Key(parent, entry)) != nil else { return false }
            removeOutdated(&steps)
            return true
        }
        first = nil
        while first == nil, let last = order.popLast() {
            steps += 1
            if isCurrent(last) {
                others[Key(last.name.parent, last.name.entry)] = nil
                first = last.name
            }
        }
        return true
    }

    /// Keeps `order` at most about twice as long as `others`: once for as many calls as it has names.
    private mutating func removeOutdated(_ steps: inout Int) {
        guard order.count > 2 * others.count + 8 else { return }
        steps += order.count
        order = order.filter(isCurrent)
    }

    mutating func removeOthers() -> [NodeName<TableNode>] {
        let removed = olderNames
        (others, order) = ([:], [])
        return removed
    }

    mutating func removeAll() -> [NodeName<TableNode>] {
        defer { self = NodeNames() }
        return all
    }
}

extension NodeName<TableNode> {
    func isSame(_ parent: TableNode, _ entry: Component) -> Bool { self.parent === parent && self.entry == entry }
}
