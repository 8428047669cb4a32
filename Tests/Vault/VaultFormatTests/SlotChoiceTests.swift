import Testing

@testable import VaultFormat

/// The order of slots, and the limit on the work demanded by a hostile configuration. The tests derive no keys.
@Suite struct SlotChoiceTests {
    /// A passphrase slot of cost N = 2^logN, r = 8.
    private func slot(_ id: Int, logN: Int, p: Int = 1) -> KeySlot {
        KeySlot(
            id: id, kind: .passphrase, label: "", created: "2026-01-01T00:00:00Z", expires: nil,
            kdf: KdfParameters(
                cost: ScryptCost(unchecked: logN, r: 8, p: p), salt: [UInt8](repeating: 0, count: 32)),
            sealed: [UInt8](repeating: 0, count: 48), window: nil)
    }

    private func tried(_ slots: [KeySlot], _ choice: SlotChoice = SlotChoice()) -> [Int] {
        choice.order(slots, kind: .passphrase) { _ in true }.tried.map(\.id)
    }

    @Test("the cheapest slots are tried first, and slots that may not be used last")
    func order() {
        let slots = [slot(1, logN: 17), slot(2, logN: 12), slot(3, logN: 17), slot(4, logN: 10, p: 16)]
        #expect(tried(slots) == [2, 4, 1, 3])
        #expect(SlotChoice().order(slots, kind: .passphrase) { $0.id != 2 }.tried.map(\.id) == [4, 1, 3, 2])
        #expect(tried(slots, SlotChoice(known: 3)) == [3, 2, 4, 1])
    }

    @Test("honest vaults never reach the limit")
    func honest() {
        #expect(tried((1...64).map { slot($0, logN: 17) }).count == 64)
        #expect(tried((1...8).map { slot($0, logN: 20) }).count == 8)
    }

    @Test("Slots-2: the costly slots of a hostile configuration are left out, unless named or allowed")
    func hostile() {
        let slots = [slot(1, logN: 17)] + (2...64).map { slot($0, logN: 20, p: 16) }
        #expect(tried(slots) == [1])
        #expect(SlotChoice().order(slots, kind: .passphrase) { _ in true }.leftOut.count == 63)
        #expect(tried(slots, SlotChoice(only: 7)) == [7])
        #expect(tried(slots, SlotChoice(allowsCostly: true)).count == 64)
        #expect(tried(slots, SlotChoice(known: 64)) == [64, 1])
        let costly = (1...64).map { slot($0, logN: 20) }
        #expect(tried(costly).count == 8)
        #expect(SlotChoice().order(slots, kind: .keyfile) { _ in true }.tried.isEmpty)
    }
}
