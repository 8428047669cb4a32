internal import LinuxSystem

/// The names of one node, the latest first. Guarded by the mutex of all nodes, so the average cost of a call does not
/// depend on the number of names, unless it returns or removes all of them: backups by hard links (cp -al) and stores
/// of packages (pnpm) give one file tens of thousands of names.
///
/// Nearly every node has one name, and each file may have a node. So the first name is kept outside of array and
/// dictionary.
struct NodeNames {
    private(set) var first: NodeName<TableNode>?
    /// The other names, each with the number of its last `put`.
    private var others: [Key: Int] = [:]
    /// The same names, the latest last. Removed and repeated names may remain here, with numbers missing in `others`.
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

    /// Makes this name the first. Returns false if it was already known.
    /// - Parameter steps: increased by the number of names examined one by one.
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

    /// Removes a name. Returns false if the node does not have it.
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
