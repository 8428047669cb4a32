internal import Glibc
internal import LinuxSystem

/// A glob over paths, as bytes. A component is fnmatch(3) with `*`, `?`, `[…]` and `\`, which do not match `/`. A
/// component `**` matches any number of components, and at the end one or more.
struct PathPattern: Sendable {
    private enum Component: Sendable {
        case anyNumber
        case glob([UInt8])
    }

    let text: [UInt8]
    private let components: [Component]

    /// Returns false for a plain path.
    static func isPattern(_ text: [UInt8]) -> Bool { text.contains { "*?[\\".utf8.contains($0) } }

    init(_ text: [UInt8]) {
        self.text = text
        components = Self.split(text).map { $0 == [UInt8]("**".utf8) ? .anyNumber : .glob($0) }
    }

    /// - Parameter path: its components.
    func matches(_ path: [[UInt8]]) -> Bool {
        var (next, position) = (0, 0)
        // The last `**`, and the position it has reached. Only the last one can ever have to match more components.
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
        // fnmatch(3) compares bytes, because this process sets no locale, and so has the C locale.
        withCString(glob) { glob in withCString(component) { fnmatch(glob, $0, 0) == 0 } }
    }
}
