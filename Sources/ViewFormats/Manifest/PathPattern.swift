internal import FileSystem
internal import Glibc
internal import LinuxSystem

/// A glob over paths, as bytes: in a component fnmatch(3) with `*`, `?`, `[…]` and `\`, none of which crosses a `/`; and
/// `**` as a whole component, which stands for any number of them (at the end: one or more).
struct PathPattern: Sendable {
    private enum Component: Sendable {
        case anyNumber
        case glob([UInt8])
    }

    let text: [UInt8]
    private let components: [Component]

    /// Whether the text is more than a path.
    static func isPattern(_ text: [UInt8]) -> Bool {
        text.contains { "*?[\\".utf8.contains($0) }
    }

    init(_ text: [UInt8]) {
        self.text = text
        components = Self.split(text).map { $0 == [UInt8]("**".utf8) ? .anyNumber : .glob($0) }
    }

    /// - Parameter path: its components.
    func matches(_ path: [[UInt8]]) -> Bool {
        var (next, position) = (0, 0)
        // Where the last `**` stands, and how far the path went when it was met: only that one is ever tried longer.
        var retry: (next: Int, position: Int)?
        while position < path.count {
            if next < components.count {
                switch components[next] {
                case .anyNumber:
                    if next == components.count - 1 { return true }
                    next += 1
                    retry = (next, position)
                    continue
                case .glob(let glob):
                    if Self.matches(glob, path[position]) {
                        next += 1
                        position += 1
                        continue
                    }
                }
            }
            guard let last = retry else { return false }
            retry = (last.next, last.position + 1)
            (next, position) = (last.next, last.position + 1)
        }
        return next == components.count
    }

    static func split(_ path: [UInt8]) -> [[UInt8]] {
        path.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).map(Array.init)
    }

    private static func matches(_ glob: [UInt8], _ component: [UInt8]) -> Bool {
        // Of the C locale, since this process sets none: bytes.
        withCString(glob) { glob in withCString(component) { fnmatch(glob, $0, 0) == 0 } }
    }
}
