import FileSystem
import Testing

@testable import FuseSession

/// The times of reports of damage.
@Suite struct DamageLogTests {
    private let log = DamageLog()

    private func damage(_ name: String, _ reason: String = "chunk 1: its data is damaged") -> Damage {
        Damage(reason, at: ObjectPath(stored: Array("x-\(name)".utf8), plaintext: Array(name.utf8)))
    }

    @Test("once a minute for each file, whatever its chunk")
    func interval() {
        #expect(log.add(damage("a"), at: 0))
        #expect(!log.add(damage("a"), at: 1))
        #expect(!log.add(damage("a", "chunk 2: its data is damaged"), at: 59_999))
        #expect(log.add(damage("b"), at: 59_999))
        #expect(log.add(Damage("header: cut short", at: nil), at: 59_999))
        #expect(log.add(damage("a", "chunk 3: its data is damaged"), at: 60_000))
        #expect(
            Set(log.all.map(\.message)) == [
                "damaged: a: chunk 3: its data is damaged", "damaged: b: chunk 1: its data is damaged",
                "damaged: an object without a name: header: cut short",
            ])
        #expect(log.all.last?.message == "damaged: a: chunk 3: its data is damaged")
    }

    @Test("a vault of which everything is damaged fills neither the log nor the memory")
    func many() {
        let reported = (0..<3 * DamageLog.maximumCount).filter { log.add(damage("\($0)"), at: 0) }
        #expect(reported.count == DamageLog.maximumCount)
        #expect(log.all.count == DamageLog.maximumCount)
        #expect(!log.add(damage("later"), at: 59_999))
        #expect(log.add(damage("later"), at: 60_000))
        #expect(log.all.count == DamageLog.maximumCount)
    }

    @Test("a lock removes the plaintext names")
    func names() {
        _ = log.add(damage("a\n"), at: 0)
        #expect(log.all.map(\.message) == ["damaged: a?: chunk 1: its data is damaged"])
        log.forgetNames()
        #expect(log.all.map(\.message) == ["damaged: encrypted path x-a?: chunk 1: its data is damaged"])
    }
}
