import Testing

@testable import FuseSession

/// Who answers an open that waits. libfuse calls for an interrupt also from within the function that it is told whom to
/// call with, and then still uses the request.
@Suite struct AnsweringTests {
    @Test("An interrupt that came before libfuse was told: answered when it has been, not within")
    func early() {
        let answering = Answering()
        #expect(!answering.interrupt())
        #expect(answering.begin())
        #expect(answering.take())
        #expect(!answering.take())
    }

    @Test("A later one is answered at once, by one alone")
    func later() {
        let answering = Answering()
        #expect(!answering.begin())
        #expect(answering.interrupt())
        #expect(answering.take())
        #expect(answering.interrupt())
        #expect(!answering.take())
    }
}
