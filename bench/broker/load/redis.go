package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// Connections to Redis, each with one record in flight: it is added to a stream, and a WAIT behind it in the same bytes says
// how many replicas have it.
func redis(address, stream string, connections, seconds, bytes, replicas int) any {
	request := command("XADD", stream, "*", "v", strings.Repeat("x", bytes)) + command("WAIT", fmt.Sprint(replicas), "10000")
	var took times
	var done sync.WaitGroup
	first, firsts := 0, sync.Mutex{}
	begin := time.Now().Add(warmUp)
	end := begin.Add(time.Duration(seconds) * time.Second)
	for range connections {
		done.Add(1)
		go func() {
			defer done.Done()
			connection, err := net.Dial("tcp", address)
			must(err)
			answers, mine, early := bufio.NewReader(connection), []int64{}, 0
			for sent := time.Now(); sent.Before(end); sent = time.Now() {
				_, err := io.WriteString(connection, request)
				must(err)
				must(added(answers, replicas))
				if sent.Before(begin) {
					early++
				} else {
					mine = append(mine, int64(time.Since(sent)))
				}
			}
			took.add(mine)
			firsts.Lock()
			first += early
			firsts.Unlock()
		}()
	}
	done.Wait()
	return with(took.summary(), map[string]float64{
		"records_per_s": float64(len(took.all)) / float64(seconds), "first_second": float64(first),
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
