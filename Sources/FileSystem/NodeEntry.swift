package import Glibc

/// The result of a lookup: a node, counted as one more lookup, and its attributes.
package struct NodeEntry {
    package var id: NodeID
    package var attributes: stat

    package init(id: NodeID, attributes: stat) {
        self.id = id
        self.attributes = attributes
    }
}

/// One entry of a listing.
package struct ListedEntry {
    package var name: [UInt8]
    /// Inode number and type (S_IFMT), or all of them in a listing with attributes.
    package var attributes: stat
    /// The backing directory's offset of the next entry.
    package var nextOffset: Int64
    /// In a listing with attributes, the node. It counts as one lookup if the entry is taken. Nil for `.` and `..`.
    package var id: NodeID?

    package init(name: [UInt8], attributes: stat, nextOffset: Int64, id: NodeID? = nil) {
        self.name = name
        self.attributes = attributes
        self.nextOffset = nextOffset
        self.id = id
    }
}
