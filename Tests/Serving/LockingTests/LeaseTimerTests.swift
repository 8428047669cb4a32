import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing

@testable import Locking

@Suite struct LeaseTimerTests {
    @Test("other entries of a busy directory call nothing, and hide neither the watched one nor the end")
    func busyDirectory() throws {
        let directory = try TemporaryDirectory()
        let watched: Component = "watched"
        let root = Descriptor(owning: open(directory.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
        let calls = Monitor(0)
        let timer = try LeaseTimer(changes: EntryWatch(watched, in: root)) { calls.update { $0 += 1 } }
        defer { timer.stop() }
        func replace(_ name: String) {
            let temporary = directory.appending("new")
            close(open(temporary, O_WRONLY | O_CREAT, 0o600))
            #expect(rename(temporary, directory.appending(name)) == 0)
        }
        for number in 0..<1000 { replace("other\(number % 3)") }
        replace("watched")
        let called: Void? = calls.wait(until: .now + .seconds(60)) { $0 > 0 ? () : nil }
        #expect(called != nil)
        // The events are in order, so those of other entries were read before.
        #expect(calls.access { $0 } == 1)
        for number in 0..<1000 {
            replace("other\(number % 3)")
            if number == 500 { timer.set(LeaseEnd(wall: 1, boot: 1)) }
        }
        let ended: Void? = calls.wait(until: .now + .seconds(60)) { $0 > 1 ? () : nil }
        #expect(ended != nil)
    }
}
