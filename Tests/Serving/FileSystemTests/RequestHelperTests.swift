import CLinux
import Foundation
import Glibc
import LinuxSystem
import Testing

@testable import FileSystem

/// Pieces of a request, done by a worker and its helper.
@Suite(.timeLimit(.minutes(60))) struct RequestHelperTests {
    private final class Buffers: WorkerBuffers {
        let reply = UnsafeMutableRawBufferPointer.allocate(byteCount: 64, alignment: 16)

        func wipe() {}

        deinit { reply.deallocate() }
    }

    /// A request whose pieces may fail.
    private struct Request: CustomStringConvertible {
        let count: Int
        /// These pieces fail while they are prepared.
        let unprepared: Set<Int>
        /// This piece fails while it is finished.
        let unfinished: Int
        /// These pieces take some time.
        let slow: Set<Int>

        init(_ generator: inout some RandomNumberGenerator) {
            count = .random(in: 0...RequestHelper.mostInOrder, using: &generator)
            func some(_ most: Int) -> Set<Int> {
                Set(
                    (0..<Int.random(in: 0...most, using: &generator)).map { _ in
                        .random(in: 0..<RequestHelper.mostInOrder, using: &generator)
                    })
            }
            unprepared = some(2)
            unfinished = .random(in: 0..<(2 * RequestHelper.mostInOrder), using: &generator)
            slow = some(8)
        }

        var description: String {
            "\(count) pieces, unprepared: \(unprepared), unfinished: \(unfinished), slow: \(slow)"
        }

        /// The number of finished pieces, and the error.
        var expected: (done: Int, error: StoreError?) {
            let unprepared = unprepared.min() ?? .max
            if count <= min(unprepared, unfinished) { return (count, nil) }
            return (
                min(unprepared, unfinished), unprepared <= unfinished ? .damaged("unprepared") : .damaged("unfinished")
            )
        }
    }

    @Test("pieces are finished in order, each with what was prepared for it, up to the first that fails")
    func order() throws {
        for isIdle in [true, false] {
            try withRequestHelper(cores: IdleCores(of: isIdle ? .max : 0)) {
                Buffers()
            } _: { helper in
                let helper = try #require(helper)
                let worker = Buffers()
                var generator = SystemRandomNumberGenerator()
                for _ in 0..<2_000 {
                    let request = Request(&generator)
                    var finished: [Int] = []
                    let found = helper.shareInOrder(request.count, in: worker.reply, worker) {
                        (index, buffer, _) throws(StoreError) in
                        for position in 0..<buffer.count { buffer[position] = UInt8(index + 1) }
                        if request.slow.contains(index) { for _ in 0..<20 { sched_yield() } }
                        if request.unprepared.contains(index) { throw .damaged("unprepared") }
                    } finish: { (index, buffer) throws(StoreError) in
                        #expect(buffer.allSatisfy { $0 == UInt8(index + 1) } && buffer.count == 64, "\(request)")
                        if index == request.unfinished { throw .damaged("unfinished") }
                        finished.append(index)
                    }
                    #expect(found.done == request.expected.done && found.error == request.expected.error, "\(request)")
                    #expect(finished == Array(0..<found.done), "\(request)")
                }
                #expect((helper.helped.total > 0) == isIdle)
            }
        }
    }

    @Test("a worker sleeps while the helper's last piece takes longer than some looks for its end")
    func longPiece() throws {
        try withRequestHelper(cores: IdleCores(of: .max)) {
            Buffers()
        } _: { helper in
            let helper = try #require(helper)
            let worker = linux_thread()
            let (isTaken, mayEnd) = (Monitor(false), Monitor(false))
            let seen = Monitor<Bool?>(nil)
            let watch = try BackgroundThread {
                isTaken.wait(until: .now + .seconds(20)) { $0 ? () : nil }
                let isAsleep = Self.sleeps(worker)
                seen.update { $0 = isAsleep }
                mayEnd.update { $0 = true }
            }
            defer { watch.join() }
            let buffers = Buffers()
            let (done, error) = helper.shareInOrder(2, in: buffers.reply, buffers) { (_, _, _) throws(StoreError) in
                if linux_thread() == worker {
                    // The helper begins with the other piece.
                    isTaken.wait(until: .now + .seconds(20)) { $0 ? () : nil }
                } else {
                    isTaken.update { $0 = true }
                    mayEnd.wait(until: .now + .seconds(20)) { $0 ? () : nil }
                }
            } finish: { (_, _) throws(StoreError) in
            }
            #expect(done == 2 && error == nil)
            #expect(seen.wait(until: .now + .seconds(20)) { $0 } == true)
        }
    }

    /// Waits until a thread of this process sleeps for several looks. Returns false if it keeps running.
    private static func sleeps(_ thread: Int32) -> Bool {
        let deadline = ContinuousClock.now + .seconds(10)
        var looks = 0
        while looks < 10 {
            if ContinuousClock.now > deadline { return false }
            usleep(1000)
            let status = (try? String(contentsOfFile: "/proc/self/task/\(thread)/stat", encoding: .utf8)) ?? ""
            // The state follows the name, which is in parentheses (proc(5)).
            looks = status.contains(") S ") ? looks + 1 : 0
        }
        return true
    }
}
