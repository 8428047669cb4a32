/// What is wrong with a playlist, and where. The text is for people: lower case, no full stop, no secrets.
package struct PlaylistError: Error, Hashable, Sendable {
    /// Counted from 1; 0: the whole of it.
    package var line: Int
    package var text: String

    package init(line: Int, text: String) {
        self.line = line
        self.text = text
    }
}
