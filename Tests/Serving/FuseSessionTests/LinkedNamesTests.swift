import LinuxSystem
import Testing

@testable import FuseSession

/// The notifications that a lock or an unlock must wait for.
@Suite struct LinkedNamesTests {
    @Test("Whatever threads ask in turn, the last directory of each is known until its notification has returned")
    func lastDirectories() throws {
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<200 {
            let displaced = DueNotifications(batch: .max)
            let workers = (0..<3).map { _ in LinkedNames(displaced: displaced) }
            // More threads than a worker remembers. Threads of other process namespaces all have the id 0.
            let threads = (0..<UInt32.random(in: 1...200)).map { $0 % 7 == 0 ? 0 : $0 }
            var last = [UInt64](repeating: 0, count: threads.count)
            for _ in 0..<500 {
                let thread = Int.random(in: 0..<threads.count, using: &generator)
                last[thread] = UInt64.random(in: 1...40, using: &generator)
                workers.randomElement(using: &generator)?.add(last[thread], thread: threads[thread])
            }
            let known = workers.reduce(into: Set(displaced.all.keys)) { $0.formUnion($1.directories) }
            for (thread, directory) in zip(threads, last) where directory != 0 {
                #expect(known.contains(directory), "thread \(thread)")
            }
        }
    }

    @Test("A thread that lists a whole tree leaves one directory")
    func oneThread() {
        let displaced = DueNotifications(batch: .max)
        let worker = LinkedNames(displaced: displaced)
        for directory in 1...10_000 as ClosedRange<UInt64> { worker.add(directory, thread: 77) }
        #expect(worker.directories == [10_000] && displaced.all.isEmpty)
    }

    @Test("A notification is due until it has returned, also one that is added while it is sent")
    func due() throws {
        let due = DueNotifications(batch: 2)
        let sent = Monitor<[UInt64]>([])
        let isHeld = Monitor(true)
        due.add(1, 10..<20)
        #expect(due.all == [1: 10..<20])
        try due.start { inode, _ in
            sent.update { $0.append(inode) }
            isHeld.wait { $0 ? nil : () }
        }
        due.add(2)
        #expect(sent.wait(until: .now + .seconds(20)) { $0.isEmpty ? nil : () } != nil)
        #expect(due.all == [1: 10..<20, 2: 0..<0])
        // The notifications of one inode are joined, however many come while the kernel delays one.
        for offset in 100..<5000 { due.add(1, offset..<offset + 1) }
        #expect(due.all == [1: 10..<5000, 2: 0..<0])
        due.add(3)
        isHeld.update { $0 = false }
        #expect(sent.wait(until: .now + .seconds(20)) { $0.count == 4 ? () : nil } != nil)
        due.end()
        #expect(due.all.isEmpty)
        // The thread for notifications has ended.
        due.add(4)
        due.add(5)
        #expect(due.all == [4: 0..<0, 5: 0..<0])
    }

    @Test(
        "A kernel's release",
        arguments: [("6.18.44-fc", 6, 18), ("7.0", 7, 0), ("6", 6, 0), ("", 0, 0), ("6.1.0-13-amd64", 6, 1)])
    func release(text: String, major: Int, minor: Int) {
        #expect(KernelRelease(Array(text.utf8)) == KernelRelease(major: major, minor: minor))
        #expect(KernelRelease(major: 6, minor: 18) < KernelRelease.withoutDirectoryLock)
        #expect(KernelRelease(major: 7, minor: 0) > KernelRelease.withoutDirectoryLock)
    }
}
