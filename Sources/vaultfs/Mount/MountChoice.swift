internal import ArgumentParser
internal import Control

/// `[MOUNTPOINT | --all]`: whose daemons a command asks.
struct MountChoice: ParsableArguments {
    @Argument(help: "Where a vault is mounted; may be left out where you have only one mount.")
    var mountpoint: PathArgument?

    @Flag(help: "All your mounts; as root, every user's.")
    var all = false

    func validate() throws {
        guard !(all && mountpoint != nil) else {
            throw ValidationError("only one of MOUNTPOINT, --all can be given")
        }
    }

    /// Sends the request to every mount chosen, to all at once, and returns when all have answered.
    /// - Throws: codes `mountpoint`, `usage` where it is not clear which mount is meant.
    func ask(_ request: ControlRequest) throws(CommandFailure) -> [MountAnswer] {
        if let mountpoint { return [try MountAnswer.ask(mountpoint.path, request)] }
        guard all else { return [try MountAnswer.askOnly(request)] }
        return try MountAnswer.askAll(request)
    }
}
