import Glibc
import LinuxSystem
import Testing

@testable import FileSystem

/// The list of a node's names: the most recent first, without duplicates.
@Suite struct NodeNamesTests {
    private let parent = TableNode(key: FileIdentity(stat()), kind: S_IFDIR)
    private let other = TableNode(key: FileIdentity(stat()), kind: S_IFDIR)

    private func ascii(_ text: String) -> [UInt8] { Array(text.utf8) }

    private func expect(_ names: NodeNames, _ shown: String) {
        let all = names.all.map { ($0.parent === parent ? "" : "other/") + String(decoding: $0.entry, as: UTF8.self) }
        #expect(all.joined(separator: " ") == shown && (names.first == nil) == shown.isEmpty)
    }

    @Test("A repeated name comes first, and counts once")
    func order() {
        var names = NodeNames()
        expect(names, "")
        let news = [(parent, "a"), (parent, "b"), (other, "a"), (parent, "a"), (parent, "a")].map { parent, name in
            names.put(parent, ascii(name))
        }
        #expect(news == [true, true, true, false, false])
        expect(names, "a other/a b")
    }

    @Test("Any name can be removed; then the next one is first")
    func removal() {
        var names = NodeNames()
        for name in ["a", "b", "c"] { _ = names.put(parent, ascii(name)) }
        let none = [names.remove(other, ascii("c")), names.remove(parent, ascii("d"))]
        #expect(none == [false, false])
        for (name, left) in [("b", "c a"), ("c", "a"), ("a", "")] {
            let wasThere = names.remove(parent, ascii(name))
            #expect(wasThere)
            expect(names, left)
        }
    }

    @Test("Removal of all but the first, and of all")
    func removals() {
        var names = NodeNames()
        for name in ["a", "b", "c"] { _ = names.put(parent, ascii(name)) }
        let others = names.removeOthers()
        #expect(others.map(\.entry) == [ascii("b"), ascii("a")])
        expect(names, "c")
        let last = names.removeAll()
        #expect(last.map(\.entry) == [ascii("c")])
        expect(names, "")
    }
}
