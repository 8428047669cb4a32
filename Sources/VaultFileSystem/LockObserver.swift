/// What requests tell the locker. Called on their threads; never blocks.
protocol LockObserver: Sendable {
    /// A request was refused.
    func refused()
    /// No file is open for writing any more.
    func noWriterLeft()
    /// The last handle of an unless-open file was closed while the vault is locked.
    func closed(_ node: Node)
}
