internal import LinuxSystem

extension RedoLog {
    /// The log's file. Other programs may give its name to another one.
    struct OpenLog {
        let descriptor: Descriptor
        let identity: FileIdentity
    }

    /// The state of the log's file. Each function is one transition in ARCHITECTURE's list.
    enum Phase {
        /// The file is not open. The next entry opens or makes it.
        case unopened
        case working(OpenLog)
        /// The store was full after a part of an entry. Its number gives a nonce that must not be used again, so a
        /// checkpoint changes the salt before the next entry.
        case needsSalt(OpenLog)
        /// For this reason a new log must begin before anything can be acknowledged.
        case failed(OpenLog, StoreError)

        var log: OpenLog? {
            switch self {
            case .unopened: nil
            case .working(let log), .needsSalt(let log), .failed(let log, _): log
            }
        }

        var fault: StoreError? { if case .failed(_, let fault) = self { fault } else { nil } }

        var needsSalt: Bool { if case .needsSalt = self { true } else { false } }

        /// unopened → working
        mutating func open(_ log: OpenLog) {
            guard case .unopened = self else { preconditionFailure("a log is opened once") }
            self = .working(log)
        }

        /// working → needsSalt
        mutating func tearEntry() {
            guard case .working(let log) = self else { preconditionFailure("only a working log gets entries") }
            self = .needsSalt(log)
        }

        /// needsSalt → working
        mutating func useNewSalt() {
            guard case .needsSalt(let log) = self else { preconditionFailure("a salt is changed after a torn entry") }
            self = .working(log)
        }

        /// Returns false if the log did not work before, or has no file, which the next entry tries to make.
        ///
        /// working, needsSalt → failed
        mutating func fail(_ error: StoreError) -> Bool {
            switch self {
            case .unopened, .failed: return false
            case .working(let log), .needsSalt(let log): self = .failed(log, error)
            }
            return true
        }

        /// working, needsSalt, failed → working
        mutating func renew(_ log: OpenLog) {
            if case .unopened = self { preconditionFailure("a log without a file is not renewed") }
            self = .working(log)
        }

        /// working, needsSalt, failed → unopened
        mutating func end() {
            if case .unopened = self { preconditionFailure("only an open log ends") }
            self = .unopened
        }
    }
}
