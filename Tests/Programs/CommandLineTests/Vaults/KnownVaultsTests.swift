import Testing

@testable import vaultfs

/// The list of this user's vaults.
@Suite struct KnownVaultsTests {
    @Test("random additions, moves, copies and removals: every label and every path leads to one vault")
    func random() throws {
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<300 {
            var list = KnownVaults()
            // The id of the vault at each path.
            var vaults: [String: String] = [:]
            for _ in 0..<40 {
                let path = "/\(["a", "b", "dir/a", "-x"].randomElement(using: &generator) ?? "a")"
                switch Int.random(in: 0..<4, using: &generator) {
                case 0: vaults[path] = ["1", "2", "3"].randomElement(using: &generator)
                case 1: vaults[path] = nil
                case 2:
                    guard let first = list.vaults.randomElement(using: &generator) else { continue }
                    let isKnown = list.forget(first.label)
                    #expect(isKnown)
                default:
                    guard let id = vaults[path] else { continue }
                    func isThere(_ vault: KnownVault) -> Bool { vaults[vault.path] == vault.id }
                    try list.remember(id: id, path: path, isThere: isThere) { $0.mountpoint = path }
                    let entries = list.vaults.filter { $0.path == path }
                    #expect(entries.map(\.id) == [id] && entries.first?.mountpoint == path)
                }
                #expect(Set(list.vaults.map(\.label)).count == list.vaults.count)
                #expect(Set(list.vaults.map(\.path)).count == list.vaults.count)
                #expect(list.vaults.allSatisfy { KnownVaults.isValid($0.label) })
            }
        }
    }

    @Test("a moved vault keeps its label and options, and a copy gets its own")
    func moved() throws {
        var list = KnownVaults()
        func isThere(_: KnownVault) -> Bool { true }
        try list.remember(id: "1", path: "/Taxes", isThere: isThere) { $0.options = ["--read-only"] }
        try list.remember(id: "1", path: "/Moved", isThere: { _ in false })
        #expect(list.vaults.map(\.path) == ["/Moved"] && list["Taxes"]?.options == ["--read-only"])
        try list.remember(id: "1", path: "/disk/Taxes", isThere: { _ in true })
        #expect(list["Taxes-2"]?.path == "/disk/Taxes" && list["Taxes"]?.path == "/Moved")
        #expect(throws: CommandFailure.self) {
            try list.remember(id: "1", path: "/disk/Taxes", label: "Taxes", isThere: { _ in true })
        }
        try list.remember(id: "1", path: "/disk/Taxes", label: "old", isThere: { _ in true })
        #expect(list.vaults.map(\.label) == ["Taxes", "old"])
    }

    @Test(
        "words that are no labels", arguments: ["", "-x", "a/b", ".", "..", "a\nb", String(repeating: "x", count: 65)])
    func invalid(label: String) { #expect(!KnownVaults.isValid(label)) }
}
