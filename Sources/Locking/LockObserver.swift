/// What requests tell the lock controller. Called on their threads; never blocks.
package protocol LockObserver: Sendable {
    /// A request was refused.
    func refused()
    /// No file is open for writing any more.
    func noWriterLeft()
    /// The last handle of a file that outlives a lock while it is open was closed while it is locked.
    /// - Parameter forgetKeys: wipes the file's keys, unless it was opened again.
    func closed(inode: UInt64, forgetKeys: @escaping @Sendable () -> Void)
}
