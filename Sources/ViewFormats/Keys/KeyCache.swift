/// A bounded number of keys by name. Evicts those with the oldest use. One thread at a time.
struct KeyCache {
    private struct Entry {
        let material: KeyMaterial
        var lastUse: UInt64
        /// True if the key has opened a file. A file that it does not open is damaged.
        var isProven = false
    }

    private let capacity: Int
    private var entries: [KeyName: Entry] = [:]
    private var clock: UInt64 = 0

    init(capacity: Int) { self.capacity = capacity }

    mutating func find(_ name: KeyName) -> KeyMaterial? {
        clock += 1
        let now = clock
        return { entry in
            entry?.lastUse = now
            return entry?.material
        }(&entries[name])
    }

    mutating func insert(_ material: KeyMaterial, for name: KeyName) {
        if entries.count >= capacity, entries[name] == nil { shrink() }
        clock += 1
        entries[name] = Entry(material: material, lastUse: clock)
    }

    /// Evicts the older half at once. A search for the oldest at each insert would cost more than to fetch a key again.
    private mutating func shrink() {
        let uses = entries.values.map(\.lastUse).sorted()
        let median = uses[uses.count / 2]
        entries = entries.filter { $0.value.lastUse > median }
    }

    mutating func prove(_ name: KeyName) { entries[name]?.isProven = true }

    mutating func removeUnproven(_ name: KeyName) {
        if entries[name]?.isProven == false { entries[name] = nil }
    }

    mutating func removeAll() { entries.removeAll() }
}
