import Glibc
import LinuxSystem
import Testing

@testable import FileSystem

/// The list of a node's names: the most recent first, without duplicates.
@Suite struct NodeNamesTests {
    private let parent = TableNode(key: FileIdentity(stat()), kind: S_IFDIR)
    private let other = TableNode(key: FileIdentity(stat()), kind: S_IFDIR)

    private func expect(_ names: NodeNames, _ shown: String) {
        let all = names.all.map { ($0.parent === parent ? "" : "other/") + String(decoding: $0.entry, as: UTF8.self) }
        #expect(all.joined(separator: " ") == shown && (names.first == nil) == shown.isEmpty)
    }

    @Test("A repeated name comes first, and counts once")
    func order() {
        var names = NodeNames()
        var steps = 0
        expect(names, "")
        let put: [(TableNode, Component)] = [(parent, "a"), (parent, "b"), (other, "a"), (parent, "a"), (parent, "a")]
        let news = put.map { parent, name in
            names.put(parent, name, &steps)
        }
        #expect(news == [true, true, true, false, false])
        expect(names, "a other/a b")
    }

    @Test("Any name can be removed; then the next one is first")
    func removal() {
        var names = NodeNames()
        var steps = 0
        for name: Component in ["a", "b", "c"] { _ = names.put(parent, name, &steps) }
        let none = [names.remove(other, "c", &steps), names.remove(parent, "d", &steps)]
        #expect(none == [false, false])
        for (name, left): (Component, String) in [("b", "c a"), ("c", "a"), ("a", "")] {
            let wasThere = names.remove(parent, name, &steps)
            #expect(wasThere)
            expect(names, left)
        }
    }

    @Test("Removal of all but the first, and of all")
    func removals() {
        var names = NodeNames()
        var steps = 0
        for name: Component in ["a", "b", "c"] { _ = names.put(parent, name, &steps) }
        let others = names.removeOthers()
        #expect(others.map(\.entry) == ["b", "a"])
        expect(names, "c")
        let last = names.removeAll()
        #expect(last.map(\.entry) == ["c"])
        expect(names, "")
    }

    @Test("The work of each call does not grow with the number of names")
    func work() throws {
        let count = 20_000
        let entries = try (0..<count).map { try Component(Array("\($0)".utf8)) }
        var names = NodeNames()
        var steps = 0
        for entry in entries { _ = names.put(parent, entry, &steps) }
        // Look up known names in another order, and remove every second one.
        for index in 0..<count { _ = names.put(parent, entries[index * 7919 % count], &steps) }
        for index in stride(from: 0, to: count, by: 2) { _ = names.remove(parent, entries[index], &steps) }
        #expect(names.all.count == count / 2 && steps < 8 * count, "\(steps) steps")
        while let first = names.first { _ = names.remove(parent, first.entry, &steps) }
        #expect(steps < 8 * count, "\(steps) steps")
    }
}
