import LinuxSystem
import Testing

/// Runs all bodies at once and returns when all have ended. An error thrown by one is recorded as an issue.
func concurrently(_ bodies: [@Sendable () throws -> Void]) throws {
    let threads = try bodies.map { body in
        try BackgroundThread {
            do { try body() } catch { Issue.record(error) }
        }
    }
    for thread in threads { thread.join() }
}
