/// One line on stderr that is written over as work goes on, where stderr is a terminal; nothing elsewhere.
struct ProgressLine {
    let isShown = Console.isStandardErrorTerminal
    /// CR, then ECMA-48 "erase in line".
    private static let startOver = "\r\u{1B}[K"

    func show(_ text: String) {
        if isShown { Console.writeToStandardError(Self.startOver + text) }
    }

    func clear() {
        if isShown { Console.writeToStandardError(Self.startOver) }
    }
}
