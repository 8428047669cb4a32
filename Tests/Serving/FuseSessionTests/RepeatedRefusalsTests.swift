import Testing

@testable import FuseSession

struct RepeatedRefusalsTests {
    private let read = RepeatedRefusals.Read(thread: 1, node: 2, offset: 3)

    @Test("only a thread that repeats the same read again and again has to wait")
    func repeated() {
        let refusals = RepeatedRefusals()
        let others = [
            RepeatedRefusals.Read(thread: 9, node: 2, offset: 3), .init(thread: 1, node: 9, offset: 3),
            .init(thread: 1, node: 2, offset: 9),
        ]
        for round in 0..<32 {
            #expect(!refusals.isRepeated(read, at: round * 1000))
        }
        for other in others { #expect(!refusals.isRepeated(other, at: 31_000)) }
        #expect(refusals.isRepeated(read, at: 32_000))
        #expect(refusals.isRepeated(read, at: 33_000))
        // After a pause the count starts again.
        #expect(!refusals.isRepeated(read, at: 34_001))
    }

    @Test("more reads than can be remembered are delayed, while the others are recent")
    func memory() {
        let refusals = RepeatedRefusals()
        for offset in 0..<RepeatedRefusals.memory {
            #expect(!refusals.isRepeated(.init(thread: 1, node: 2, offset: 100 + Int64(offset)), at: 0))
        }
        #expect(refusals.isRepeated(read, at: 1000))
        #expect(!refusals.isRepeated(read, at: 1001))
    }
}
