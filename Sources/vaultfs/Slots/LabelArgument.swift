internal import ArgumentParser

/// A slot's label on the command line: UTF-8.
struct LabelArgument: ExpressibleByArgument {
    let text: String

    init?(argument: String) {
        guard let text = String(validating: ProcessArguments.bytes(of: argument), as: UTF8.self) else { return nil }
        self.text = text
    }
}
