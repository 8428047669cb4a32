import CLinux
import Glibc
import Synchronization
import Testing

/// Data left by a thread after its work with secrets.
@Suite struct ScrubTests {
    private static let size = 1024

    /// Returns the number of recently copied bytes that a signal saves on the stack.
    private static func savedBytes(afterScrub scrubs: Bool) -> Int {
        let (source, copy) = (
            UnsafeMutableRawPointer.allocate(byteCount: size, alignment: 64),
            UnsafeMutableRawPointer.allocate(byteCount: size, alignment: 64)
        )
        defer {
            source.deallocate()
            copy.deallocate()
        }
        memset(source, Int32(secretByte), size)
        var action = sigaction()
        action.__sigaction_handler.sa_sigaction = countSavedBytes
        action.sa_flags = SA_SIGINFO
        sigaction(SIGUSR1, &action, nil)
        var all = sigset_t()
        sigfillset(&all)
        // Test processes start with signals blocked.
        pthread_sigmask(SIG_UNBLOCK, &all, nil)
        longestRun.store(0, ordering: .relaxed)
        memcpy(copy, source, size)
        if scrubs { linux_scrub_thread() }
        raise(SIGUSR1)
        return longestRun.load(ordering: .relaxed)
    }

    @Test("copied bytes are in no register that a signal saves")
    func copiedBytes() async {
        await #expect(processExitsWith: .success) {
            #expect(ScrubTests.savedBytes(afterScrub: false) >= 16)
            #expect(ScrubTests.savedBytes(afterScrub: true) < 8)
        }
    }
}

private let secretByte: UInt8 = 0xC3
private let longestRun = Atomic<Int>(0)

/// Counts bytes in the registers of the kernel's frame for the signal (sigreturn(2)).
private func countSavedBytes(_: Int32, _: UnsafeMutablePointer<siginfo_t>?, _ context: UnsafeMutableRawPointer?) {
    guard let context else { return }
    var saved = UnsafeRawBufferPointer(start: context, count: MemoryLayout<ucontext_t>.size)
    #if arch(x86_64)
    // struct _fpx_sw_bytes, at the end of the FXSAVE area, has the size of everything saved by XSAVE.
    guard let registers = UnsafeRawPointer(context.load(as: ucontext_t.self).uc_mcontext.fpregs) else { return }
    saved = UnsafeRawBufferPointer(start: registers, count: Int(registers.load(fromByteOffset: 468, as: UInt32.self)))
    #endif
    var (run, longest) = (0, 0)
    for byte in saved {
        run = byte == secretByte ? run + 1 : 0
        longest = max(longest, run)
    }
    longestRun.store(longest, ordering: .relaxed)
}
