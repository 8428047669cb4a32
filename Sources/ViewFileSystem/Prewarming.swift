internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import ViewFormats

/// Directories whose files' keys are to be fetched ahead, in order. Any thread.
final class Prewarming: Sendable {
    private struct State {
        var directories: [Work] = []
        var isEnding = false
    }

    struct Work: Sendable {
        /// Opened when its turn comes: who lists a large tree is quicker than we are, and descriptors are few.
        var node: ViewNode
        /// With all directories below, and keys that are derived at some cost.
        var isWhole: Bool
    }

    /// More listings than this at a time are not followed.
    private static let most = 10_000

    private let state = Monitor(State())

    func add(_ work: Work) {
        state.update { state in
            if state.directories.count < Self.most { state.directories.append(work) }
        }
    }

    func end() {
        state.update { $0.isEnding = true }
    }

    /// Waits for work; nil at the end.
    func next() -> Work? {
        state.wait { state -> Work?? in
            if state.isEnding { return .some(nil) }
            return state.directories.isEmpty ? nil : .some(state.directories.removeFirst())
        }
    }

    var isEnding: Bool { state.update { $0.isEnding } }
}
