import Testing

@testable import FuseSession

/// The choice of the thread to reply to a waiting open. `fuse_req_interrupt_func` itself may report an interrupt, and
/// still uses the request afterwards.
@Suite struct ReplyOnceTests {
    @Test("An interrupt during the registration is answered after the registration, not inside it")
    func early() {
        let replies = ReplyOnce()
        #expect(!replies.interrupt())
        #expect(replies.begin())
        #expect(replies.claim())
        #expect(!replies.claim())
    }

    @Test("A later interrupt is answered at once, by one thread only")
    func later() {
        let replies = ReplyOnce()
        #expect(!replies.begin())
        #expect(replies.interrupt())
        #expect(replies.claim())
        #expect(replies.interrupt())
        #expect(!replies.claim())
    }
}
