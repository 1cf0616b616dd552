package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
)

// Connections to Redis, each with one record in flight: it is added to a stream, and a WAIT behind it in the same bytes says
// how many replicas have it.
func redis(address, stream string, connections, seconds, bytes, replicas int) any {
	request := command("XADD", stream, "*", "v", strings.Repeat("x", bytes)) + command("WAIT", fmt.Sprint(replicas), "10000")
	return inTurn(connections, seconds, func(int) func() error {
		connection, err := net.Dial("tcp", address)
		must(err)
		answers := bufio.NewReader(connection)
		return func() error {
			if _, err := io.WriteString(connection, request); err != nil {
				return err
			}
			return added(answers, replicas)
		}
	})
}

func command(words ...string) string {
	said := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		said += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	return said
}

// Reads `$N`, the record's id, and `:N`, how many replicas have it.
func added(answers *bufio.Reader, replicas int) error {
	lines := [3]string{}
	for at := range lines {
		line, err := answers.ReadString('\n')
		if err != nil {
			return err
		}
		lines[at] = strings.TrimSpace(line)
	}
	var have int
	if _, err := fmt.Sscanf(lines[2], ":%d", &have); err != nil || lines[0][0] != '$' || have < replicas {
		return fmt.Errorf("not added, or not by %d replicas: %q", replicas, lines)
	}
	return nil
}
