import Testing

@testable import FuseSession

/// Which thread replies to an open that waits. `fuse_req_interrupt_func` itself may report an interrupt, and then still
/// uses the request.
@Suite struct ReplyOnceTests {
    @Test("An interrupt during the registration is answered after it, not within")
    func early() {
        let replies = ReplyOnce()
        #expect(!replies.interrupt())
        #expect(replies.begin())
        #expect(replies.take())
        #expect(!replies.take())
    }

    @Test("A later interrupt is answered at once, by one thread only")
    func later() {
        let replies = ReplyOnce()
        #expect(!replies.begin())
        #expect(replies.interrupt())
        #expect(replies.take())
        #expect(replies.interrupt())
        #expect(!replies.take())
    }
}
