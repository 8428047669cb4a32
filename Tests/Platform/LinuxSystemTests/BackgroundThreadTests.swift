import Glibc
import LinuxSystem
import Synchronization
import Testing

@Suite struct BackgroundThreadTests {
    private static let size = 1024

    @Test("the content of a thread's stack is not there when it has ended")
    func contentOfThreadsStack() throws {
        let size = Self.size
        let memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC)
        defer { close(memory) }
        let place = Atomic<Int>(0)
        let marks = Atomic<Int>(0)
        let thread = try BackgroundThread {
            withUnsafeTemporaryAllocation(byteCount: size, alignment: 16) { buffer in
                buffer.initializeMemory(as: UInt8.self, repeating: 0xC3)
                place.store(Int(bitPattern: buffer.baseAddress), ordering: .relaxed)
            }
            marks.store(Self.marks(in: memory, at: place.load(ordering: .relaxed)), ordering: .relaxed)
        }
        thread.join()
        #expect(marks.load(ordering: .relaxed) > size / 2)
        // The stack may still be mapped for the next thread, but its content must be wiped.
        #expect(Self.marks(in: memory, at: place.load(ordering: .relaxed)) < 16)
    }

    private static func marks(in memory: Int32, at place: Int) -> Int {
        withUnsafeTemporaryAllocation(byteCount: size, alignment: 16) { found in
            let count = pread(memory, found.baseAddress, found.count, off_t(place))
            return found.prefix(max(0, count)).count { $0 == 0xC3 }
        }
    }
}
