/// The slots on which a secret is tried. `vaultfs.json` may come from an attacker, so the total cost is bounded.
package struct SlotChoice: Sendable {
    /// Maximum work for slots that the user did not explicitly allow, as the sum of N·r·p. It allows 64 slots of the
    /// standard cost, or 8 of the highest cost that vaultfs makes, and takes about half a minute.
    package static let maximumWork = 64 * ScryptCost.standard.work

    /// The id of the only slot to try. If nil, all slots of the secret's kind are tried, the cheapest first.
    package var only: Int?
    /// True to try every slot, whatever it costs.
    package var allowsCostly = false
    /// The id of a slot whose cost does not count. It is tried first.
    package var known: Int?

    package init(only: Int? = nil, allowsCostly: Bool = false, known: Int? = nil) {
        self.only = only
        self.allowsCostly = allowsCostly
        self.known = known
    }

    /// Returns the slots of one kind in the order in which they are tried, and the slots that would exceed the bound.
    /// - Parameter isUsable: false for a slot that may not be used now. It is tried last, because the secret may have
    ///   a newer one.
    func order(
        _ slots: [KeySlot], kind: SlotKind, isUsable: (KeySlot) -> Bool
    ) -> (tried: [KeySlot], leftOut: [KeySlot]) {
        let candidates = slots.filter { $0.kind == kind && (only ?? $0.id) == $0.id }
        var tried = candidates.filter { $0.id == known }
        var leftOut: [KeySlot] = []
        var work = 0
        let byCost = candidates.filter { $0.id != known }.map { (slot: $0, work: $0.kdf.cost?.work ?? 0) }
            .sorted { ($0.work, $0.slot.id) < ($1.work, $1.slot.id) }
        for (slot, cost) in byCost {
            work += cost
            if work <= Self.maximumWork || allowsCostly || only != nil {
                tried.append(slot)
            } else {
                leftOut.append(slot)
            }
        }
        return (tried.filter(isUsable) + tried.filter { !isUsable($0) }, leftOut)
    }
}
