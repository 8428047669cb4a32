package import Glibc

/// What lookup and its kin answer: a node, counted as known to the kernel once more, and its attributes.
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
    /// Inode number and type (S_IFMT); for a listing with attributes all of them.
    package var attributes: stat
    /// Where the listing goes on: the store's own offset.
    package var nextOffset: Int64
    /// Of a listing with attributes: counted as looked up once if the entry is taken; nil for `.` and `..`.
    package var id: NodeID?

    package init(name: [UInt8], attributes: stat, nextOffset: Int64, id: NodeID? = nil) {
        self.name = name
        self.attributes = attributes
        self.nextOffset = nextOffset
        self.id = id
    }
}
