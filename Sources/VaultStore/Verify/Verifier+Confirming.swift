internal import Glibc

extension Verifier {
    /// Maximum number of looks at an object that keeps changing.
    private static let mostLooks = 5
    /// Time between two looks. A request of the daemon completes within it.
    private static let pause: Duration = .milliseconds(200)

    /// Checks an object by `look`. While a daemon has the vault, `look` is repeated until it finds nothing, or the same
    /// twice.
    /// - Parameter isThere: returns false once the object has been removed. Then it has no findings.
    func confirmed(isThere: () -> Bool, _ look: () -> Void) {
        guard isInUse else { return look() }
        let before = totals
        var last: [VerifierFinding] = []
        // The findings of every look.
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
        // The last finding has the object's name.
        guard let seen = last.last else { return }
        handOut(
            VerifierFinding(
                kind: .busy, path: seen.path, backingPath: seen.backingPath, attribute: nil, plaintextOffset: nil,
                plaintextCount: nil, message: "it changed at every look: whether it is damaged cannot be told",
                remedy: nil, slot: nil))
    }
}
