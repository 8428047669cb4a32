internal import Glibc
internal import Logging

/// The background process: takes the secret from the channel, mounts, reports, serves.
enum DaemonChild {
    /// Does not return.
    static func run(_ subject: any MountSubject, _ request: MountRequest, channel: DaemonChannel) -> Never {
        _ = fcntl(channel.descriptor, F_SETFD, FD_CLOEXEC)
        LoggingSystem.bootstrap { label in SyslogHandler(label: label) }
        // Before there are keys, and threads.
        let guardian = Guardian.start()
        guard let secret = channel.receiveSecret() else {
            exit(FailureCode.failure.rawValue)
        }
        do {
            let daemon = try Daemon(
                subject, request, secret: secret, guardian: guardian, isWanted: { !channel.isAbandoned })
            ProcessSetup.leaveDirectory()
            try daemon.serve {
                ProcessSetup.detach()
                do {
                    try channel.send(.ready)
                } catch {
                    daemon.logger.notice("whoever asked for the mount has gone: unmounting")
                    daemon.requestUnmount()
                }
                channel.close()
            }
        } catch {
            let failure = CommandFailure(any: error) ?? CommandFailure(.failure, "\(error)")
            // Nobody left to tell is what the exit code is for.
            try? channel.send(.failed(failure))
            // Not exit(3): it cleans up state that threads of a mount that was made and ended may still use.
            _exit(failure.code.rawValue)
        }
    }
}
