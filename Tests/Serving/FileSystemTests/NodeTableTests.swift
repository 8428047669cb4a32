import Glibc
import LinuxSystem
import Testing

@testable import FileSystem

@Suite struct NodeTableTests {
    private func directory(_ inode: UInt) -> stat {
        var status = stat()
        (status.st_ino, status.st_mode) = (inode, S_IFDIR | 0o755)
        return status
    }

    @Test("The work for each directory does not grow with its depth")
    func depth() throws {
        let root = TableNode(key: FileIdentity(directory(1)), kind: S_IFDIR)
        let table = NodeTable(root: root)
        var parent = root
        for depth in 2...2000 {
            // The first call makes the node, the second looks it up.
            let inner = table.intern(directory(UInt(depth)), parent: parent, entry: "d")
            #expect(table.intern(directory(UInt(depth)), parent: parent, entry: "d") === inner)
            parent = inner
        }
        #expect(table.steps == 0)
        _ = table.path(of: parent)
        #expect(table.steps == 1999)
    }

    @Test("A directory that the store shows below itself keeps its name above")
    func circle() {
        let root = TableNode(key: FileIdentity(directory(1)), kind: S_IFDIR)
        let table = NodeTable(root: root)
        let outer = table.intern(directory(2), parent: root, entry: "1")
        let inner = table.intern(directory(3), parent: outer, entry: "2")
        for parent in [outer, inner] {
            #expect(table.intern(directory(2), parent: parent, entry: "3") === outer)
            #expect(table.path(of: inner).map(\.entry) == ["1", "2"])
        }
        for node in [outer, outer, outer, inner] { table.forget(node, count: 1) }
        #expect(table.count == 1)
    }
}
