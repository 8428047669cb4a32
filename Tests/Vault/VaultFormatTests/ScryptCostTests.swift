import Testing
import VaultFormat

@Suite struct ScryptCostTests {
    private static func cost(_ logN: Int, r: Int = 8, p: Int = 1) throws -> ScryptCost {
        try ScryptCost(logN: logN, r: r, p: p)
    }

    @Test("a slot costs the standard, or as much as the costliest slot that it replaces or joins")
    func defaultCost() throws {
        let (weak, strong, parallel) = (try Self.cost(12), try Self.cost(19), try Self.cost(14, p: 16))
        for (others, expected) in [
            ([], .standard), ([weak], .standard), ([strong], strong), ([weak, strong], strong),
            ([strong, weak], strong),
            // A new slot must never be cheaper than the one it replaces.
            ([parallel], parallel),
        ] as [([ScryptCost], ScryptCost)] {
            #expect(ScryptCost.beside(others) == expected, "\(others)")
        }
    }

    @Test("more memory does not compensate for less work, nor more work for less memory")
    func parameters() throws {
        let (parallel, large) = (try Self.cost(14, p: 16), try Self.cost(16))
        #expect(!large.isAtLeast(parallel) && !parallel.isAtLeast(large))
        #expect(try Self.cost(18).isAtLeast(parallel))
        #expect(try Self.cost(14, r: 16).isAtLeast(Self.cost(15)))
    }
}
