// sarama.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

var value = strings.Repeat(" the same words again and again", 8)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var saying sync.Mutex

func say(words ...any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(words...)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	parsed, err := strconv.Atoi(text)
	must(err)
	return parsed
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	return config
}

func produce(address, topic, compression string, first, count, paceMs int) {
	config := config()
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Compression = codecs[compression]
	config.Producer.Return.Successes = true
	// Until a broker comes again: three looks in a second are what it takes before it gives up.
	config.Metadata.Retry.Max = 100
	config.Producer.Retry.Max = 100
	producer, err := sarama.NewAsyncProducer(strings.Split(address, ","), config)
	must(err)
	// Each is answered before it is closed: what it sends again as it closes, it drops.
	var answered sync.WaitGroup
	answered.Add(count)
	go func() {
		for message := range producer.Successes() {
			say("acked", message.Partition, message.Offset, message.Metadata)
			answered.Done()
		}
	}()
	go func() {
		for err := range producer.Errors() {
			must(err)
		}
	}()
	for n := first; n < first+count; n++ {
		producer.Input() <- &sarama.ProducerMessage{
			Topic:    topic,
			Key:      sarama.StringEncoder(fmt.Sprintf("k%d", n%20)),
			Value:    sarama.StringEncoder(fmt.Sprint(n, value)),
			Headers:  []sarama.RecordHeader{{Key: []byte("story"), Value: []byte("told")}},
			Metadata: n,
		}
		time.Sleep(time.Duration(paceMs) * time.Millisecond)
	}
	answered.Wait()
	must(producer.Close())
}

func tell(message *sarama.ConsumerMessage) {
	headers := []string{}
	for _, header := range message.Headers {
		headers = append(headers, string(header.Key)+"="+string(header.Value))
	}
	n, _, _ := strings.Cut(string(message.Value), " ")
	say("read", message.Partition, message.Offset, string(message.Key), strings.Join(headers, ","), n)
}

type handler struct{}

func (handler) Setup(session sarama.ConsumerGroupSession) error {
	for _, partitions := range session.Claims() {
		sort.Slice(partitions, func(a, b int) bool { return partitions[a] < partitions[b] })
		say("owns", strings.Trim(fmt.Sprint(partitions), "[]"))
	}
	return nil
}

func (handler) Cleanup(sarama.ConsumerGroupSession) error {
	say("owns")
	return nil
}

func (handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			tell(message)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func consume(address, topic, group, _ string) {
	config := config()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	members, err := sarama.NewConsumerGroup(strings.Split(address, ","), group, config)
	must(err)
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for stopping.Err() == nil {
		if err := members.Consume(stopping, []string{topic}, handler{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	must(members.Close())
}

// Goes on whatever it is told, and says it.
func endure(address, topic, kind string, paceMs int) {
	config := config()
	config.Producer.Idempotent = kind == "idempotent"
	config.Net.MaxOpenRequests = 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Metadata.Retry.Max = 100
	config.Producer.Retry.Max = 100
	producer, err := sarama.NewAsyncProducer(strings.Split(address, ","), config)
	must(err)
	var answered sync.WaitGroup
	go func() {
		for message := range producer.Successes() {
			say("acked", message.Partition, message.Offset, message.Metadata)
			answered.Done()
		}
	}()
	go func() {
		for failure := range producer.Errors() {
			say("failed", failure.Msg.Metadata, failure.Err)
			answered.Done()
		}
	}()
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for n := 0; stopping.Err() == nil; n++ {
		answered.Add(1)
		producer.Input() <- &sarama.ProducerMessage{
			Topic:    topic,
			Key:      sarama.StringEncoder(fmt.Sprintf("k%d", n%20)),
			Value:    sarama.StringEncoder(fmt.Sprint(n, value)),
			Headers:  []sarama.RecordHeader{{Key: []byte("story"), Value: []byte("told")}},
			Metadata: n,
		}
		time.Sleep(time.Duration(paceMs) * time.Millisecond)
	}
	answered.Wait()
	must(producer.Close())
}

// Reads whatever happens, in a group or in none, and says what it is told.
func watch(address, topic, group string) {
	if group == "none" {
		watchAlone(address, topic)
		return
	}
	config := config()
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	members, err := sarama.NewConsumerGroup(strings.Split(address, ","), group, config)
	must(err)
	go func() {
		for err := range members.Errors() {
			say("shown", err)
		}
	}()
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for stopping.Err() == nil {
		if err := members.Consume(stopping, []string{topic}, handler{}); err != nil {
			say("shown", "Consume:", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	must(members.Close())
}

func watchAlone(address, topic string) {
	config := config()
	config.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumer(strings.Split(address, ","), config)
	must(err)
	claim, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	must(err)
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for {
		select {
		case <-stopping.Done():
			return
		case err := <-claim.Errors():
			if err != nil {
				say("shown", err)
			}
		case message, ok := <-claim.Messages():
			if !ok {
				say("ended", "the partition's messages ended")
				return
			}
			tell(message)
		}
	}
}

func connect(address string) sarama.Client {
	client, err := sarama.NewClient(strings.Split(address, ","), config())
	must(err)
	return client
}

func read(address, topic string) {
	client := connect(address)
	consumer, err := sarama.NewConsumerFromClient(client)
	must(err)
	partitions, err := client.Partitions(topic)
	must(err)
	for _, partition := range partitions {
		end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		must(err)
		if end == 0 {
			continue
		}
		claim, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		must(err)
		for message := range claim.Messages() {
			tell(message)
			if message.Offset == end-1 {
				break
			}
		}
		must(claim.Close())
	}
}

func offsetAt(address, topic string, ms int) {
	client := connect(address)
	partitions, err := client.Partitions(topic)
	must(err)
	for _, partition := range partitions {
		offset, err := client.GetOffset(topic, partition, int64(ms))
		must(err)
		say("at", partition, offset)
	}
}

func unknown(address, topic string) {
	config := config()
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(strings.Split(address, ","), config)
	must(err)
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic})
	say("refused", err)
}

func transact(address string) {
	config := config()
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Transaction.ID = "first"
	_, err := sarama.NewAsyncProducer(strings.Split(address, ","), config)
	say("refused", err)
}

func main() {
	verb, at := os.Args[1], os.Args[2:]
	switch verb {
	case "produce":
		produce(at[0], at[1], at[2], number(at[3]), number(at[4]), number(at[5]))
	case "consume":
		consume(at[0], at[1], at[2], at[3])
	case "endure":
		endure(at[0], at[1], at[2], number(at[3]))
	case "watch":
		watch(at[0], at[1], at[2])
	case "read":
		read(at[0], at[1])
	case "offset-at":
		offsetAt(at[0], at[1], number(at[2]))
	case "unknown":
		unknown(at[0], at[1])
	case "transact":
		transact(at[0])
	}
}
