internal import ArgumentParser
internal import Control

/// What a command that asked several mounts says: results on stdout, a line on stderr for each that failed.
struct MountAnswerReport {
    let isJSON: Bool
    /// Whether several were asked for: JSON is then an array.
    let isList: Bool

    /// - Parameters:
    ///   - print: shows a response to people.
    ///   - failure: what is wrong with a response; nil where nothing is.
    /// - Throws: the failure, or an exit code where they have been told.
    func finish(
        _ answers: [MountAnswer], print show: (String, ControlResponse) -> Void,
        failure: (String, ControlResponse) -> CommandFailure?
    ) throws {
        var failures: [CommandFailure] = []
        for answer in answers {
            switch answer.outcome {
            case .answered(let response):
                if !isJSON { show(answer.mountpoint, response) }
                if let failure = failure(answer.mountpoint, response) { failures.append(failure) }
            case .dead:
                if !isJSON { Swift.print("\(answer.mountpoint): its daemon has ended; it holds nothing") }
            case .unreachable(let reason):
                failures.append(CommandFailure(.failure, "\(answer.mountpoint): \(reason)"))
            }
        }
        if isJSON { try printJSON(answers) }
        guard let first = failures.first else { return }
        if failures.count == 1 { throw first }
        for failure in failures { Console.report(failure.message) }
        throw ExitCode(first.code.rawValue)
    }

    private func printJSON(_ answers: [MountAnswer]) throws(CommandFailure) {
        let values = answers.map(Self.value)
        try Console.printJSON(isList ? .array(values) : values.first ?? .null)
    }

    /// The daemon's own answer, and which mount it is about.
    private static func value(_ answer: MountAnswer) -> JSONValue {
        var fields: [String: JSONValue] = ["mountpoint": .string(answer.mountpoint)]
        switch answer.outcome {
        case .answered(let response): fields.merge(response.fields) { own, _ in own }
        case .dead: fields["state"] = .string("dead")
        case .unreachable(let reason): fields["error"] = .string(reason)
        }
        return .object(fields)
    }
}
