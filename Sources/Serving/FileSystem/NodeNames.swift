/// The names of one node, the latest first. Guarded by the node table's mutex.
///
/// Nearly every node has one name, and there may be a node for each file. So the first name needs no array.
struct NodeNames {
    private(set) var first: NodeName<TableNode>?
    private var others: [NodeName<TableNode>] = []

    var all: [NodeName<TableNode>] { first.map { [$0] + others } ?? [] }

    /// Makes this name the first. Returns false if it was known already.
    mutating func put(_ parent: TableNode, _ entry: [UInt8]) -> Bool {
        guard let known = first else {
            first = NodeName(parent: parent, entry: entry)
            return true
        }
        if known.isSame(parent, entry) { return false }
        let wasKnown = removeOther(parent, entry)
        others.insert(known, at: 0)
        first = NodeName(parent: parent, entry: entry)
        return !wasKnown
    }

    /// Returns false if it is not one of the names.
    mutating func remove(_ parent: TableNode, _ entry: [UInt8]) -> Bool {
        guard let known = first, known.isSame(parent, entry) else { return removeOther(parent, entry) }
        first = others.isEmpty ? nil : others.removeFirst()
        return true
    }

    private mutating func removeOther(_ parent: TableNode, _ entry: [UInt8]) -> Bool {
        guard let index = others.firstIndex(where: { $0.isSame(parent, entry) }) else { return false }
        others.remove(at: index)
        return true
    }

    mutating func removeOthers() -> [NodeName<TableNode>] {
        defer { others = [] }
        return others
    }

    mutating func removeAll() -> [NodeName<TableNode>] {
        defer { self = NodeNames() }
        return all
    }
}

extension NodeName<TableNode> {
    fileprivate func isSame(_ parent: TableNode, _ entry: [UInt8]) -> Bool {
        self.parent === parent && self.entry == entry
    }
}
