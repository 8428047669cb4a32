import Testing
import VaultFormat

@Suite struct ScryptCostTests {
    private static func cost(_ logN: Int, r: Int = 8, p: Int = 1) throws -> ScryptCost {
        try ScryptCost(logN: logN, r: r, p: p)
    }

    @Test("a changed slot costs no less to guess, unless that is allowed")
    func replacing() throws {
        let (weak, strong) = (try Self.cost(12), try Self.cost(19))
        for (old, asked, allowingWeaker, expected) in [
            (weak, nil, false, .standard), (strong, nil, false, strong), (strong, weak, false, strong),
            (strong, weak, true, weak), (weak, strong, false, strong), (strong, nil, true, strong),
            (nil, nil, false, .standard), (nil, weak, false, weak),
        ] as [(ScryptCost?, ScryptCost?, Bool, ScryptCost)] {
            // For a passphrase that replaces a passphrase, the cost of the other slots does not matter.
            for others in old == nil ? [[]] : [[], [strong]] {
                let cost = ScryptCost.replacing(old, beside: others, asked: asked, allowingWeaker: allowingWeaker)
                #expect(cost == expected, "\(String(describing: (old, asked, allowingWeaker)))")
            }
        }
    }

    @Test("a passphrase that replaces a keyfile costs no less than the passphrases beside it, unless that is allowed")
    func replacingKeyfile() throws {
        let (weak, strong, stronger) = (try Self.cost(12), try Self.cost(18), try Self.cost(19))
        for (others, asked, allowingWeaker, expected) in [
            ([strong], nil, false, strong), ([weak, strong], nil, true, strong), ([weak], nil, false, .standard),
            ([strong, weak], weak, false, strong), ([strong], weak, true, weak), ([strong], stronger, false, stronger),
            ([weak], weak, false, weak), ([], weak, false, weak),
        ] as [([ScryptCost], ScryptCost?, Bool, ScryptCost)] {
            let cost = ScryptCost.replacing(nil, beside: others, asked: asked, allowingWeaker: allowingWeaker)
            #expect(cost == expected, "\((others, asked, allowingWeaker))")
        }
    }

    @Test("more memory does not compensate for less work, nor more work for less memory")
    func parameters() throws {
        let (parallel, large) = (try Self.cost(14, p: 16), try Self.cost(16))
        #expect(!large.isAtLeast(parallel) && !parallel.isAtLeast(large))
        #expect(ScryptCost.replacing(parallel, beside: [], asked: large, allowingWeaker: false) == parallel)
        #expect(try Self.cost(18).isAtLeast(parallel))
        #expect(try Self.cost(14, r: 16).isAtLeast(Self.cost(15)))
    }

    @Test(
        "--kdf-time chooses the largest cost that is fast enough",
        arguments: [(1, 10), (2, 11), (7, 12), (8, 13), (1000, 19), (1024, 20), (100_000, 20)])
    func largest(limit: Int, logN: Int) throws {
        var spent = Duration.zero
        let largest = try ScryptCost.largest(within: .milliseconds(limit)) { cost in
            let time = Duration.milliseconds(1 << (cost.logN - 10))
            spent += time
            return time
        }
        #expect(largest?.cost == (try Self.cost(logN)))
        #expect(spent < .milliseconds(2 * limit))
    }

    @Test("a derivation that never gets fast enough, or becomes slower at once")
    func slowness() throws {
        #expect(try ScryptCost.largest(within: .milliseconds(1)) { _ in .milliseconds(2) } == nil)
        let uneven = try ScryptCost.largest(within: .milliseconds(10)) { .milliseconds($0.logN == 10 ? 1 : 11) }
        #expect(uneven?.cost == (try Self.cost(10)))
        #expect(try ScryptCost.derivationTime(Self.cost(10)) > .zero)
    }
}
