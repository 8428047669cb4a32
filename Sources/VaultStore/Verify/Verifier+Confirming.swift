internal import FileSystem
internal import Glibc

extension Verifier {
    /// How often something is looked at until it stands still.
    private static let mostLooks = 5
    /// From one look to the next: a request of the daemon's that was under way is then done.
    private static let pause: Duration = .milliseconds(200)

    /// Looks at something by `look`; while a daemon has the vault, until it finds nothing, or the same twice.
    /// - Parameter isThere: false once it has been removed: then nothing is found.
    func confirmed(isThere: () -> Bool, _ look: () -> Void) {
        guard isInUse else { return look() }
        let before = totals
        var last: [VerifierFinding] = []
        // What was found at every look, whatever else changed.
        var always: [VerifierFinding]?
        for _ in 0..<Self.mostLooks {
            totals = before
            unconfirmed = []
            look()
            let found = unconfirmed ?? []
            unconfirmed = nil
            if found == last || found.isEmpty {
                for finding in found { handOut(finding) }
                return
            }
            last = found
            always = always?.filter(found.contains) ?? found
            usleep(useconds_t(Self.pause / .microseconds(1)))
            if !isThere() { return }
        }
        for finding in always ?? [] { handOut(finding) }
        // What was found last tells what it is called.
        guard let seen = last.last else { return }
        handOut(
            VerifierFinding(
                kind: .busy, path: seen.path, backingPath: seen.backingPath, attribute: nil, plaintextOffset: nil,
                plaintextCount: nil, message: "it changed at every look: whether it is damaged cannot be told",
                remedy: nil, slot: nil))
    }
}
